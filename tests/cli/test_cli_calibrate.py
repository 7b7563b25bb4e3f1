"""Preflights on real loopback hosts become rows of a policy draft that a ledger would adopt."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from events.types.policy import Policy
from hypercluster.cli.calibrate import UNVERIFIED, draft
from hypercluster.cli.errors import CliError
from hypercluster.cli.main import run
from hypercluster.domain.codes import Exit
from hypercluster.domain.policy.check import check_policy
from hypercluster.domain.policy.release import POLICY_V1, SIM_POLICY
from hypercluster.domain.scores import factors
from hypercluster.effects.ssh import generate_client_key

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import clusters

BASE = msgspec.to_builtins(SIM_POLICY)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HYPER_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two real hosts, the key that opens them, what `cluster up` would print, and a policy to start from."""
    directory = tmp_path_factory.mktemp("calibrate")
    key = directory / "client_key"
    public = directory / "client_key.txt"
    public.write_text(generate_client_key(key) + "\n")
    cluster = clusters.start_cluster(directory / "hosts", public, nodes=2, gpus=2)
    rows = [
        {"endpoint": h.endpoint, "user": h.user, "host_key": h.host_key, "gpus": list(h.gpus)} for h in cluster.hosts
    ]
    (directory / "hosts.json").write_text(json.dumps({"items": rows, "directory": "hosts"}))
    (directory / "policy.json").write_text(json.dumps(BASE))
    yield SimpleNamespace(directory=directory, key=key, hosts=cluster.hosts)
    cluster.end()


def argv(site, *more: str) -> list[str]:
    given = ["calibrate", "--ssh-key", str(site.key), "--policy", str(site.directory / "policy.json")]
    return [*given, "--runs", "1", "--profile", "sim", *more]


def named(host) -> list[str]:
    return ["--node", host.endpoint, "--user", host.user, "--host-key", host.host_key]


def test_the_hosts_of_a_cluster_give_a_draft_that_would_be_adopted(site, capfd):
    assert run(argv(site, "--hosts", str(site.directory / "hosts.json"))) == Exit.DONE
    out, err = capfd.readouterr()
    made = msgspec.convert(json.loads(out), Policy)
    assert check_policy(made) is None
    assert made.version == SIM_POLICY.version + 1
    shapes = {
        (row.program, row.hardware_class, row.fabric, row.nodes): row.bytes_per_s for row in made.expected_bandwidth
    }
    fresh = {
        ("digest-1", UNVERIFIED, "none", 1),
        ("ring-xor-1", UNVERIFIED, "eth", 1),
        ("ring-xor-1", UNVERIFIED, "eth", 2),
    }
    before = {
        (row.program, row.hardware_class, row.fabric, row.nodes): row.bytes_per_s
        for row in SIM_POLICY.expected_bandwidth
    }
    assert shapes.keys() == before.keys()  # replaced, not repeated
    assert {key for key in before if shapes[key] != before[key]} == fresh
    assert len(err.splitlines()) == 3
    same = msgspec.structs.replace(made, version=1, expected_bandwidth=SIM_POLICY.expected_bandwidth)
    assert same == SIM_POLICY


def test_named_nodes_of_another_class_add_rows_to_a_file(site, capfd):
    out = site.directory / "draft.json"
    more = ["--ranks", "2", "--hardware-class", "T4_16GB", "--out", str(out)]
    assert run(argv(site, *named(site.hosts[0]), *named(site.hosts[1]), *more)) == Exit.DONE, capfd.readouterr().err
    assert capfd.readouterr().out == ""
    made = msgspec.convert(json.loads(out.read_text()), Policy)
    added = made.expected_bandwidth[len(SIM_POLICY.expected_bandwidth) :]
    assert [(row.program, row.hardware_class, row.nodes) for row in added] == [
        ("digest-1", "T4_16GB", 1),
        ("ring-xor-1", "T4_16GB", 1),
        ("ring-xor-1", "T4_16GB", 2),
    ]
    assert all(row.bytes_per_s > 0 for row in added)


def test_a_node_with_another_key_is_named_and_nothing_is_written(site, capfd):
    first, second = site.hosts
    wrong = ["--node", first.endpoint, "--user", first.user, "--host-key", second.host_key]
    out = site.directory / "never.json"
    assert run(argv(site, *wrong, "--out", str(out))) == Exit.REMOTE_FAILED
    err = capfd.readouterr().err
    assert "host_key_mismatch" in err
    assert first.endpoint in err
    assert len(err.splitlines()) == 3
    assert not out.exists()


def test_production_does_not_connect_to_loopback(site, capfd):
    assert run([*argv(site, *named(site.hosts[0])), "--profile", "production"]) == Exit.REMOTE_FAILED
    assert "endpoint_forbidden" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ([], Exit.USAGE),
        (["--node", "127.0.0.1:22"], Exit.USAGE),
        (["--hosts", "POLICY"], Exit.USAGE),
        (["--hosts", "NOWHERE"], Exit.NOT_FOUND),
        (["--ssh-key", "POLICY", "--hosts", "HOSTS"], Exit.USAGE),
        (["--ssh-key", "NOWHERE", "--hosts", "HOSTS"], Exit.NOT_FOUND),
        (["--policy", "HOSTS", "--hosts", "HOSTS"], Exit.USAGE),
        (["--allow-network", "127.0.0.0/8", "--hosts", "HOSTS"], Exit.USAGE),
        (["--profile", "neither", "--hosts", "HOSTS"], Exit.USAGE),
    ],
)
def test_wrong_input_is_said_in_three_lines(site, capfd, more, code):
    words = {"POLICY": "policy.json", "HOSTS": "hosts.json", "NOWHERE": "nowhere.json"}
    given = [str(site.directory / words[word]) if word in words else word for word in more]
    assert run(argv(site, *given)) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split(":")[0].strip() for line in err.splitlines()] == ["error", "why", "next"]


def test_a_draft_of_what_is_no_policy_is_refused():
    with pytest.raises(CliError, match="no policy"):
        draft({"version": 1}, [])
    row = {"program": "p", "hardware_class": "c", "fabric": "eth", "nodes": 1, "bytes_per_s": 0}
    with pytest.raises(CliError, match="positive bandwidth"):
        draft(msgspec.to_builtins(POLICY_V1), [row])


def test_rows_are_for_the_class_that_scoring_looks_for():
    assert UNVERIFIED == factors.UNVERIFIED
