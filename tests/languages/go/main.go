package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	paymentID, data := "pay-1", `{"amount": 42}`

	// README: pgx
	if err != nil {
		log.Fatal(err)
	}
}
