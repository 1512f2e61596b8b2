/** Which device it is that writes to a database just now, for an alarm. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Device } from '../maintenance/alarms.ts'

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const MAX_CLIENT = 100

/**
 * The device whose request under way writes to a database for an account. What a database's thread tells of a write
 * arrives before the write is answered; of several requests, the newest.
 * @returns null when there is none
 */
export function writingDevice(app: FastifyInstance, database: string, account: string | null): Device | null {
  const request = app.callsInFlight.requests().findLast((each) => writes(each, database, account))
  if (request === undefined) return null
  const { token } = request.identity
  return {
    token: token === null ? null : (app.services.tokens.get(token)?.name ?? null),
    client: (request.headers['user-agent'] ?? '').slice(0, MAX_CLIENT),
    address: request.address,
  }
}

function writes(request: FastifyRequest, database: string, account: string | null): boolean {
  return request.database?.name === database && request.user.name === account && !READS.has(request.method)
}
