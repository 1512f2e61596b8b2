/** The place of a feed that waits, of which an account in hosted mode has so many. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isServerAdmin } from '../auth/access.ts'
import { CouchError } from '../core/errors.ts'
import type { Place } from '../hosted/feed-places.ts'
import { addressKey } from '../hosted/lines.ts'
import { onRequestEnd } from './request-end.ts'

/** The age that a feed has at least when it is ended for another. */
const RETRY_SECONDS = '20'

/**
 * Takes a place, for which a feed may have to wait; it then counts among the requests at work no more.
 * @param end called when the feed is to end for another
 * @returns null where feeds are not counted
 * @throws too_many_requests when too many feeds wait for places already
 */
export async function takeFeedPlace(
  request: FastifyRequest,
  reply: FastifyReply,
  end: () => void,
): Promise<Place | null> {
  const { hosted } = request.server.services
  const { user } = request
  if (hosted === null || isServerAdmin(user)) return null
  request.leaveLine?.()
  const limit = (user.name === null ? hosted.tenants.defaults : hosted.tenants.quotaOf(user.name)).feeds
  const gone = new AbortController()
  const forget = onRequestEnd(request, reply, () => gone.abort())
  const place = await hosted.feeds.take(user.name ?? addressKey(request.address), limit, end, gone.signal)
  forget()
  if (place !== null) return place
  reply.header('Retry-After', RETRY_SECONDS)
  throw new CouchError('too_many_requests', `Too many feeds at once: ${limit} are served.`)
}
