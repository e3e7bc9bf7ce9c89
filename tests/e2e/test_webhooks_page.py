"""docs/webhooks.md: its SQL, its receiver and its commands run as they stand there."""
import re
import subprocess
import sys

import pytest
from harness import env
from harness.wait import eventually

PAGE = env.REPO / "docs/webhooks.md"
OPTIONS = ("url", "format", "concurrency", "batch_size", "batch", "connect_timeout", "request_timeout", "stall_timeout", "attempts", "rate_limit", "retry_after_limit", "allow_http",
           "allow_private", "idempotency_key", "headers", "ca_certificate", "secret", "bearer_token", "username", "password", "client_certificate", "client_key")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture
def receiver(tmp_path):
    """receiver.py, on a free port, with the secret of the command below it."""
    port = env.free_port()
    code, = blocks("python")
    (tmp_path / "receiver.py").write_text(code.replace("8080", str(port)))
    _, command = blocks("sh")
    secret = re.match(r"WEBHOOK_SECRET=(\S+) python3 receiver.py", command)[1]
    heard = (tmp_path / "heard").open("w+")
    process = subprocess.Popen([sys.executable, "receiver.py"], cwd=tmp_path, env={"WEBHOOK_SECRET": secret}, stdout=heard, stderr=subprocess.STDOUT)
    try:
        yield port, lambda: (tmp_path / "heard").read_text()
    finally:
        process.kill()
        process.wait()
        heard.close()


def test_the_page_runs_as_it_stands(db, receiver):
    port, heard = receiver
    secret = subprocess.run(["sh", "-c", blocks("sh")[0]], capture_output=True, text=True, check=True).stdout.strip()
    assert re.fullmatch(r"whsec_\S{44}", secret)
    for number, block in enumerate(blocks("sql")):
        db.psql(block.replace("8080", str(port)))
        if number == 1:
            eventually(lambda: "captured pay-1 {'amount': 42}" in heard(), 20, heard)
    eventually(lambda: db.value("SELECT sum(pending) FROM outbox.lag") == 0, 10, "nothing pending")
    assert db.value("SELECT state FROM outbox.lag") == "idle" and "401" not in heard()


def test_the_page_names_every_option():
    for option in OPTIONS:
        assert re.search(rf"^\| `{option}`", PAGE.read_text(), re.M), option


def test_each_link_leads_somewhere():
    page = PAGE.read_text()
    headings = {path: {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", path.read_text(), re.M)}
                for path in (PAGE, env.REPO / "README.md")}
    for link in re.findall(r"\]\((?!http)([^)]+)\)", page):
        path, _, anchor = link.partition("#")
        target = (PAGE.parent / path).resolve() if path else PAGE
        assert target.exists() and (not anchor or anchor in headings[target]), link
