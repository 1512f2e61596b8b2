/** Applies the server's policy before a route runs: suspended accounts, rate limits, and what a write may still bring. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin } from '../../auth/accounts.ts'
import type { LimitedRequest, RequestLimits } from '../../auth/policy.ts'
import { CouchError } from '../../core/errors.ts'
import { isLocalId } from '../../core/ids.ts'
import { onRequestEnd } from '../transport/json-stream.ts'
import { authenticate } from './authentication.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Stops counting the request at its rate limiter before it ends, since it will wait for long and cost nothing. */
    leaveLimiter: (() => void) | null
  }
}

/**
 * Where the policy limits requests, each waits for the limiter of its account or address. A write gets the allowance of
 * the database's owner. Otherwise nothing of this happens.
 * @returns no promise if nothing had to be waited for
 * @throws forbidden, too_many_requests
 */
export function applyLimits(request: FastifyRequest, reply: FastifyReply): Promise<void> | undefined {
  const { limits } = request.server.services.policy
  if (limits === null) return undefined
  if (request.routeOptions.config.credentials === 'ignored' || isServerAdmin(request.user)) return undefined
  return waitForTurn(limits, request, reply)
}

async function waitForTurn(
  limits: RequestLimits,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  await refuseClosedAccount(request)
  const admission = await limits.limiterOf(request.user.name, request.address)
  await new Promise<void>((resolve, reject) => waitForLimiter(admission, request, reply, resolve, reject))
}

type Admission = Awaited<ReturnType<RequestLimits['limiterOf']>>

/**
 * Refuses an account without access, whatever its credentials: a cookie, a token or a proxy may not know of a suspension.
 * Feeds check again when accounts change. A browser sends its cookie also to log out or to log in as somebody else; both
 * are allowed.
 * @throws forbidden
 */
export async function refuseClosedAccount({ user, server, routeOptions }: FastifyRequest): Promise<void> {
  if (user.name === null || isServerAdmin(user)) return
  if (routeOptions.config.credentials === 'optional') return
  const refusal = await server.services.policy.refusalOf(user.name)
  if (refusal !== null) throw new CouchError('forbidden', refusal)
}

const WRITES: ReadonlySet<string> = new Set(['PUT', 'POST', 'COPY'])

/** Gives a write the allowance of the database's owner: the owner's quota counts, whoever writes. */
export async function setAllowance(request: FastifyRequest): Promise<void> {
  const { db } = request.params as { db?: string }
  if (db === undefined || !WRITES.has(request.method) || isServerAdmin(request.user)) return
  const allowance = await request.server.services.policy.allowance(db)
  if (allowance !== undefined) request.user = { ...request.user, allowance }
}

function waitForLimiter(
  { limiter, rate }: Admission,
  request: FastifyRequest,
  reply: FastifyReply,
  onStart: () => void,
  onRefusal: (error: unknown) => void,
): void {
  let isStarted = false
  let hasWaited = false
  const leave = () => {
    if (isStarted) limiter.leave()
    else limiter.cancel(limited)
    isStarted = false
  }
  const limited: LimitedRequest = {
    hasPriority: hasPriority(request),
    start: () => {
      isStarted = true
      // The allowance is read in the request's turn, since any caller may ask for any name.
      const begun = hasWaited ? reauthorize(request, reply) : setAllowance(request)
      begun.then(onStart, onRefusal)
    },
    refuse: (seconds) => {
      if (seconds === null) request.raw.socket.destroy()
      else onRefusal(tooMany(reply, rate, seconds))
    },
  }
  request.leaveLimiter = leave
  if (request.raw.socket.destroyed) return
  onRequestEnd(request, reply, leave)
  limiter.enter(limited, rate)
  hasWaited = true
}

/** The caller's rights may have been revoked while the request waited. */
async function reauthorize(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  await authenticate(request, reply)
  await refuseClosedAccount(request)
  await setAllowance(request)
}

/** A client gives up bulk reads or its checkpoint for good when one of these is refused: clients.md R6, R7. */
function hasPriority({ routeOptions, params }: FastifyRequest): boolean {
  const { url } = routeOptions
  if (url === '/:db/_bulk_get' || url === '/:db/_local/:local') return true
  return url === '/:db/:docid' && isLocalId((params as { docid: string }).docid)
}

/** 429, with the header that says when to try again. */
function tooMany(reply: FastifyReply, rate: number, seconds: number): CouchError {
  reply.header('Retry-After', String(seconds))
  return new CouchError(
    'too_many_requests',
    `Too many requests at once: ${rate} a second are served. Try again in ${seconds} s.`,
  )
}
