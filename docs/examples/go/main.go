// Adds up what was paid, each event once, however often it comes.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := pgx.Connect(ctx, os.Getenv("DSN"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("BROKERS")),
		kgo.ConsumerGroup("totals-go"),
		kgo.ConsumeTopics(os.Getenv("TOPIC")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), // the offset is committed when the work is
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			if ctx.Err() == nil {
				log.Fatal(e.Err) // whoever started it starts it again
			}
		}
		for _, record := range fetches.Records() {
			if err := handle(ctx, db, record); err != nil {
				log.Fatal(err)
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			log.Fatal(err)
		}
	}
}

func handle(ctx context.Context, db *pgx.Conn, record *kgo.Record) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, `INSERT INTO inbox (consumer, event_id) VALUES ('totals-go', $1) ON CONFLICT DO NOTHING`, eventID(record))
		if err != nil || claimed.RowsAffected() == 0 { // none: it came before
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO totals VALUES ($1, ($2::json ->> 'amount')::numeric)
			ON CONFLICT (payment) DO UPDATE SET total = totals.total + excluded.total`, string(record.Key), string(record.Value))
		return err
	})
}

func eventID(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == "event_id" {
			return string(header.Value)
		}
	}
	return "" // not an event; the database refuses it as an id
}
