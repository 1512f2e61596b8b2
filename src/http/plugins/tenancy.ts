/** Hosted mode before a route is entered: who is suspended, who has to wait, and how much a write may still bring. */
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify'
import fp from 'fastify-plugin'
import { isServerAdmin } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import { isLocalId } from '../../core/ids.ts'
import type { Hosted } from '../../hosted/hosted.ts'
import { addressKey, type Waiter } from '../../hosted/rate-limiter.ts'
import { mostIn } from '../../hosted/write-turns.ts'
import { onRequestEnd } from '../transport/json-stream.ts'
import { authenticate } from './authentication.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Leaves the line that the request stands in, before it ends: it will wait for long, and cost nothing. */
    leaveLine: (() => void) | null
  }
}

/**
 * In hosted mode each request stands in the line of its account, or of its address, and a write to a tenant's database
 * learns what its owner may still store. In single mode nothing of this happens.
 */
export const tenancy = fp(
  async (app) => {
    app.decorateRequest('leaveLine', null)
    const { hosted } = app.services
    if (hosted === null) return
    app.addHook('onRequest', (request, reply, done) => {
      if (request.routeOptions.config.credentials === 'ignored' || isServerAdmin(request.user)) return done()
      try {
        refuseClosedAccount(request)
      } catch (error) {
        return done(error as CouchError)
      }
      setAllowance(request)
      standInLine(hosted, request, reply, done)
    })
  },
  { name: 'tenancy', dependencies: ['authentication'] },
)

/**
 * However the account has proved who it is: a cookie, a token or a proxy may know nothing of its suspension. Feeds ask
 * again when accounts change. A browser sends its cookie also to log out, or to log in as somebody else: that it may.
 * @throws forbidden
 */
export function refuseClosedAccount({ user, server, routeOptions }: FastifyRequest): void {
  const { hosted } = server.services
  if (hosted === null || user.name === null || isServerAdmin(user)) return
  if (routeOptions.config.credentials === 'optional') return
  const refusal = hosted.tenants.refusalOf(user.name)
  if (refusal !== null) throw new CouchError('forbidden', refusal)
}

const WRITES: ReadonlySet<string> = new Set(['PUT', 'POST', 'COPY'])

/** A write to a tenant's database learns what its owner may still store: the owner's quota counts, whoever writes. */
export function setAllowance(request: FastifyRequest): void {
  const { hosted } = request.server.services
  const { db } = request.params as { db?: string }
  if (hosted === null || db === undefined || !WRITES.has(request.method) || isServerAdmin(request.user))
    return
  const { owners, tenants, usage } = hosted
  const owner = owners.ownerOf(db)
  if (owner === undefined) return
  const allowance = usage.allowance(db, owner, tenants.quotaOf(owner))
  if (allowance !== undefined) request.user = { ...request.user, allowance }
}

/** Calls that write as many documents as their body, or one. */
const DOCUMENT_WRITES: ReadonlySet<string> = new Set([
  '/:db',
  '/:db/_bulk_docs',
  '/:db/:docid',
  '/:db/_local/:local',
])

/**
 * Runs a write to a tenant's database in its turn, with the allowance that is left then; anything else at once.
 * @param length of the body, in bytes
 * @throws as `work`
 */
export function inTurn<T>(request: FastifyRequest, length: number, work: () => Promise<T>): Promise<T> {
  const { hosted } = request.server.services
  const url = request.routeOptions.url ?? ''
  if (hosted === null || request.user.allowance === undefined || !DOCUMENT_WRITES.has(url)) return work()
  const { db: database } = request.params as { db: string }
  const owner = hosted.owners.ownerOf(database)
  if (owner === undefined) return work()
  const write = { database, most: mostIn(length, url === '/:db/_bulk_docs') }
  return hosted.turns.run(owner, write, hosted.tenants.quotaOf(owner), () => {
    setAllowance(request)
    return work()
  })
}

function standInLine(
  hosted: Hosted,
  request: FastifyRequest,
  reply: FastifyReply,
  done: HookHandlerDoneFunction,
): void {
  const { lines, tenants } = hosted
  const { name } = request.user
  const rate = (name === null ? tenants.defaults : tenants.quotaOf(name)).requests
  const line = lines.of(name ?? addressKey(request.address), rate)
  let isAtWork = false
  let hasWaited = false
  const leave = () => {
    if (isAtWork) line.leave()
    else line.cancel(waiter)
    isAtWork = false
  }
  const waiter: Waiter = {
    isFirst: goesFirst(request),
    go: () => {
      isAtWork = true
      if (hasWaited) admitAgain(request, reply).then(() => done(), done)
      else done()
    },
    refuse: (seconds) => {
      if (seconds === null) request.raw.socket.destroy()
      else done(tooMany(reply, rate, seconds))
    },
  }
  request.leaveLine = leave
  if (request.raw.socket.destroyed) return
  onRequestEnd(request, reply, leave)
  line.enter(waiter, rate)
  hasWaited = true
}

/** What let the caller in may have been withdrawn while the request waited. */
async function admitAgain(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  await authenticate(request, reply)
  refuseClosedAccount(request)
  setAllowance(request)
}

/** A client that is refused one of these gives up bulk reads, or its checkpoint, for good: clients.md R6, R7. */
function goesFirst({ routeOptions, params }: FastifyRequest): boolean {
  const { url } = routeOptions
  if (url === '/:db/_bulk_get' || url === '/:db/_local/:local') return true
  return url === '/:db/:docid' && isLocalId((params as { docid: string }).docid)
}

/** 429, with the header that says when to come again. */
function tooMany(reply: FastifyReply, rate: number, seconds: number): CouchError {
  reply.header('Retry-After', String(seconds))
  return new CouchError(
    'too_many_requests',
    `Too many requests at once: ${rate} a second are served. Try again in ${seconds} s.`,
  )
}
