/** Plain calls to a server. */
import { request } from 'undici'

export interface Answer {
  readonly status: number
  readonly text: string
  /** The body as JSON; undefined if it is not JSON. */
  readonly json: unknown
}

/** One call like curl's, over a separate connection. A string is sent unchanged. */
export async function call(
  server: { readonly url: string },
  method: string,
  path: string,
  { body, auth }: { readonly body?: unknown; readonly auth?: string } = {},
): Promise<Answer> {
  const { statusCode, body: answer } = await request(server.url + path, {
    method: method as 'GET',
    headers: {
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(auth !== undefined && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
    },
    body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
    reset: true,
  })
  const text = await answer.text()
  return { status: statusCode, text, json: parsed(text) }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
