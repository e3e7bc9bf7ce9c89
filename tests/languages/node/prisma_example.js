import { PrismaPg } from '@prisma/adapter-pg'
import { PrismaClient } from '@prisma/client'

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.URL }) })
const paymentId = 'pay-1', data = { amount: 42 }

// README: prisma

await prisma.$disconnect()
