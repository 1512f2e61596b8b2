/** A request by HTTP/2, as browsers make them where it is offered. */
import { connect } from 'node:http2'
import { type Client, codeOf, type Reply } from '../client.ts'
import { within } from '../within.ts'

/** @returns the status alone */
export async function askByHttp2(
  { address, authorization, trust }: Client,
  path: string,
  ms: number,
): Promise<Reply> {
  const started = performance.now()
  const origin = new URL(address.url).origin
  const session = connect(origin, trust === undefined ? {} : { secureContext: trust })
  try {
    const status = await within(
      ms,
      new Promise<number>((resolve, reject) => {
        session.once('error', reject)
        session.once('close', () => reject(Object.assign(new Error(), { code: 'ECONNRESET' })))
        const stream = session.request({
          ':path': path,
          accept: 'application/json',
          ...(authorization !== undefined && { authorization }),
        })
        stream.once('error', reject)
        stream.once('close', () => reject(Object.assign(new Error(), { code: 'ECONNRESET' })))
        stream.once('response', (headers) => resolve(Number(headers[':status'])))
        stream.resume().end()
      }),
    )
    const at = Date.now()
    return { status, headers: {}, raw: [], text: '', json: undefined, at, ms: performance.now() - started }
  } catch (error) {
    return { failure: codeOf(error) }
  } finally {
    session.on('error', () => undefined).destroy()
  }
}
