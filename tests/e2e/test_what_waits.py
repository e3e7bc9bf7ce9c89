"""Scheduled, parked and retained rows in their numbers cost the live path nothing: by what is read, and by time."""
import statistics
import time

import pytest
from conftest import Database
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

from test_latency import VALUE, Arrivals, at_rate, p99
from test_parked_at_size import park

PG_CONF = {"shared_preload_libraries": "outbox,pg_stat_statements", "pg_stat_statements.track": "all", "autovacuum": "off", "max_wal_size": "4GB"}
LIVE = "SELECT outbox.add_event(%s, 'created', %s::text, aggregate_type => 'live')"


def fill(db, topic, scheduled, parked, retained):
    """As a database is after years. The sink takes none of it."""
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
           " SELECT 'old', 'k' || g %% 1000, 'created', to_json(repeat('x', 200)) FROM generate_series(1, %s) g", [retained])
    db.sql("INSERT INTO outbox.scheduled (aggregate_type, aggregate_id, event_type, payload, deliver_at)"
           " SELECT 'old', 'k' || g %% 1000, 'created', to_json(repeat('x', 200)), now() + interval '1 day' + random() * interval '30 days'"
           " FROM generate_series(1, %s) g", [scheduled])
    park(db, topic, parked, parked // 5)
    nothing_pending(db, 120)
    for table in ("events", "scheduled", "parked_events"):
        db.sql(f"VACUUM ANALYZE outbox.{table}")


def test_no_statement_of_the_live_path_reads_more_pages_for_what_waits(make_db, kafka):
    """The plans too were made while all of it was empty."""
    db, topic = make_db(), kafka.create_topic()
    db.sql("CREATE EXTENSION pg_stat_statements")
    make_sink(db, kafka, topic, events="live/*")
    db.sql(LIVE, ["first", "0"])
    nothing_pending(db)
    fill(db, topic, scaled(20_000), scaled(2_000), scaled(20_000))
    db.sql("SELECT outbox.add_event('due', 'created', '1', aggregate_type => 'live', deliver_at => now())")  # the plan of a move
    eventually(lambda: db.value("SELECT count(*) FROM outbox.events WHERE aggregate_id = 'due'") == 1, 20, "it moves")
    nothing_pending(db)
    db.sql("SELECT pg_stat_statements_reset()")
    for number in range(50):
        db.sql(LIVE, [f"k{number}", "1"])
    db.sql("SELECT outbox.add_event('due', 'created', '2', aggregate_type => 'live', deliver_at => now())")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.events WHERE aggregate_id = 'due'") == 2, 20, "it moves")
    published = db.value("SELECT published FROM outbox.relays")
    eventually(lambda: db.value("SELECT published FROM outbox.relays") >= published and db.value("SELECT pending FROM outbox.lag") == 0, 20)
    # Of the relay's statements those that ran often are the live path; once in a while it looks after parked rows.
    rows = db.sql("SELECT calls, (shared_blks_hit + shared_blks_read) / calls, query FROM pg_stat_statements s"
                  " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
                  " AND query ~ 'events_[0-9]|outbox.(progress|scheduled|lanes)' AND query !~ 'pg_stat_statements|count\\(' ORDER BY 2 DESC")
    text = "\n".join(f"{calls} x {pages} pages: {' '.join(query.split())[:150]}" for calls, pages, query in rows)
    print(text)
    live = [(calls, pages) for calls, pages, query in rows if "outbox.scheduled" in query or calls >= 20]
    assert len(live) >= 4 and max(pages for _, pages in live) <= 60, text


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_million_scheduled_a_hundred_thousand_parked_and_a_million_retained_slow_no_live_event(make_pg, kafka):
    """p99 from COMMIT to consumer, with and without, in turn: the median of five ratios. Whoever else uses the machine must not decide it."""
    pg = make_pg(conf=PG_CONF)
    kinds = {}
    for kind in ("without", "with"):
        pg.sql(f"CREATE DATABASE {kind}_")
        db, topic = Database(pg, f"{kind}_"), kafka.create_topic()
        db.sql("CREATE EXTENSION outbox")
        make_sink(db, kafka, topic, events="live/*")
        db.sql(LIVE, ["first", "0"])
        nothing_pending(db)
        if kind == "with":
            fill(db, topic, 1_000_000, 100_000, 1_000_000)
        kinds[kind] = (db, Arrivals(kafka.bootstrap, topic, kafka.end_offsets(topic)[0]))
    pg.sql("CHECKPOINT")
    ratio = None
    for attempt in range(3):
        found = {kind: [] for kind in kinds}
        for round_ in range(5):
            for kind, (db, arrivals) in kinds.items():
                with db.connect() as c:
                    def commit(key, c=c):
                        c.execute(LIVE, [key, VALUE])
                        return time.perf_counter()
                    sent = at_rate(1000, f"{attempt}-{round_}", commit)
                found[kind].append(arrivals.of(sent))
        figures = {kind: [(round(statistics.median(v), 2), round(p99(v), 2)) for v in runs] for kind, runs in found.items()}
        ratio = statistics.median(p99(w) / p99(o) for w, o in zip(found["with"], found["without"], strict=True))
        print(f"p50 and p99 in ms: {figures}; ratio {ratio:.2f}")
        if ratio <= 1.2:
            break
    for _, arrivals in kinds.values():
        arrivals.close()
    assert ratio <= 1.2
    db = kinds["with"][0]
    assert db.sql("SELECT (SELECT count(*) FROM outbox.scheduled), (SELECT count(*) FROM outbox.parked_events)") == [(1_000_000, 100_000)]
