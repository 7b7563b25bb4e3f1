"""Refusal codes of providers and their nodes."""

from hypercluster.domain.codes import Code, register

CODES = {
    "provider_not_found": Code(404, "this hotkey is not a provider, or there is no such provider"),
    "provider_not_active": Code(403, "the provider is suspended or banned"),
    "node_not_found": Code(404, "there is no such node"),
    "node_not_owned": Code(403, "the node belongs to another provider"),
    "no_nodes": Code(404, "the provider has no nodes"),
    "too_many_nodes": Code(409, "the provider has as many nodes as the policy allows"),
    "invalid_gpu_model": Code(422, "the GPU model is blank"),
    "invalid_ssh_endpoint": Code(422, "the SSH endpoint is not host, host:port or [IPv6]:port"),
    "invalid_ssh_user": Code(422, "the SSH user is root or no Unix user name"),
    "invalid_ssh_host_key": Code(422, "the SSH host key is not `<algorithm> <base64>` of a known algorithm"),
    "host_key_taken": Code(409, "another node has pinned this SSH host key: one machine is one node"),
    "invalid_inventory": Code(422, "the inventory holds an impossible InfiniBand rate"),
    "inventory_too_large": Code(422, "the inventory exceeds the policy's limit"),
    "text_too_long": Code(422, "a private text exceeds its limit"),
    "node_under_lease": Code(
        409, "the node is under an active lease: its hardware facts are kept, it is not reclaimed"
    ),
    "not_due": Code(409, "the time for this has not come, or the finding is older than the last change"),
}

register(CODES)
