import pg from 'pg'

const client = new pg.Client({ connectionString: process.env.URL })
await client.connect()
const paymentId = 'pay-1', data = { amount: 42 }

// README: node-postgres

await client.end()
