// Adds up what was paid, each event once, however often it comes.
import { Kafka, logLevel } from 'kafkajs'
import pg from 'pg'

const db = new pg.Client({ connectionString: process.env.DSN })
await db.connect()

const kafka = new Kafka({ brokers: process.env.BROKERS.split(','), logLevel: logLevel.ERROR })
const consumer = kafka.consumer({ groupId: 'totals-node' })
await consumer.connect()
await consumer.subscribe({ topics: [process.env.TOPIC], fromBeginning: true })
await consumer.run({
  autoCommit: false, // the offset is committed when the work is
  eachMessage: async ({ topic, partition, message }) => {
    await db.query('BEGIN')
    try {
      const claim = await db.query("SELECT outbox.inbox_claim('totals-node', $1) AS claimed", [message.headers.event_id.toString()])
      if (claim.rows[0].claimed) { // else it came before
        await db.query(
          `INSERT INTO totals VALUES ($1, ($2::json ->> 'amount')::numeric)
           ON CONFLICT (payment) DO UPDATE SET total = totals.total + excluded.total`,
          [message.key.toString(), message.value.toString()])
      }
      await db.query('COMMIT')
    } catch (e) {
      await db.query('ROLLBACK')
      throw e // it comes again
    }
    await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
  }
})
