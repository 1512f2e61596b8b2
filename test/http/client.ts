import { Client } from 'undici'

export interface Ask {
  /** Sent as JSON, with its content type. */
  readonly json?: unknown
  /** Sent as it is. */
  readonly body?: string | Buffer
  readonly headers?: Readonly<Record<string, string>>
  /** `name:password`. */
  readonly auth?: string
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly text: string
  readonly bytes: Buffer
  /** The body as JSON; undefined when it is none. */
  readonly json: unknown
}

export type Call = (method: string, path: string, ask?: Ask) => Promise<Answer>

interface Test {
  after(fn: () => unknown): unknown
}

/** A client that sends paths as they stand: `fetch` would tidy them up. */
export function connect(t: Test, { url }: { readonly url: string }): Call {
  const client = new Client(url)
  t.after(() => client.destroy())
  return async (method, path, { json, body, headers, auth } = {}) => {
    const {
      statusCode,
      headers: answered,
      body: sent,
    } = await client.request({
      // undici knows no COPY, but sends it.
      method: method as 'GET',
      path,
      headers: {
        ...(json !== undefined && { 'content-type': 'application/json' }),
        ...(auth !== undefined && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
        ...headers,
      },
      body: json === undefined ? (body ?? null) : JSON.stringify(json),
    })
    const bytes = Buffer.from(await sent.arrayBuffer())
    return { status: statusCode, headers: answered, bytes, text: bytes.toString(), json: parsed(bytes) }
  }
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString()) as unknown
  } catch {
    return undefined
  }
}
