/**
 * The caller's credentials and rights once more: what let a request in may be withdrawn while its body arrives, while it
 * waits for its turn, or while it is served.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { checkAccess } from './plugins/access-rules.ts'
import { authenticate } from './plugins/authentication.ts'
import { refuseClosedAccount, setAllowance } from './plugins/tenancy.ts'

/** No header is set: a cookie that is renewed could be in an answer to somebody else. */
const DEAF = {
  header: () => DEAF,
  headers: () => DEAF,
  removeHeader: () => DEAF,
} as unknown as FastifyReply

/**
 * Looks at the credentials and rights as the hooks did at the beginning.
 * @returns the request as it stands now; `request` itself is unchanged
 * @throws what the caller would be refused with
 */
export async function recheck(request: FastifyRequest): Promise<FastifyRequest> {
  const probe = Object.create(request) as FastifyRequest
  await authenticate(probe, DEAF)
  refuseClosedAccount(probe)
  setAllowance(probe)
  await checkAccess(probe)
  return probe
}

/**
 * To be called when a body has arrived, and in the turn of a write that is made on this thread: checks the caller again
 * when accounts or rules have changed since, and otherwise costs nothing. `request.user` is as it stands now.
 * @throws as {@link recheck}
 */
export async function readmit(request: FastifyRequest): Promise<void> {
  if (request.routeOptions.config.access === 'public') return
  const { doubts } = request.server
  while (request.admittedAt !== doubts.count) {
    const { user, identity, session, admittedAt } = await recheck(request)
    Object.assign(request, { user, identity, session, admittedAt })
  }
}
