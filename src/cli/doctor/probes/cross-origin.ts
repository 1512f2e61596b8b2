/** Requests as pages of an origin make them. */
import { type Client, databasePath } from '../client.ts'
import type { CorsFacts } from '../findings/cors.ts'
import { ASKED_HEADERS } from '../findings/cross-origin.ts'

/** @param missing the id of a document that is not there */
export async function askAsPages(
  client: Client,
  origins: readonly string[],
  missing: string,
): Promise<CorsFacts[]> {
  const path = databasePath(client.address)
  return Promise.all(
    origins.map(async (origin) => {
      const [preflight, answer, refusal] = await Promise.all([
        client.ask({
          method: 'OPTIONS',
          path: `${path}/_local/${missing}`,
          anonymous: true,
          headers: {
            origin,
            'access-control-request-method': 'PUT',
            'access-control-request-headers': ASKED_HEADERS.join(','),
          },
        }),
        client.ask({ method: 'GET', path: `${path}/`, headers: { origin } }),
        client.ask({ method: 'GET', path: `${path}/_local/${missing}`, headers: { origin } }),
      ])
      return { origin, preflight, answer, refusal }
    }),
  )
}
