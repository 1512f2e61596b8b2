/** A server in front of another one, which answers some requests as a script says. */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'

/** What happens to one request. */
export type Incident =
  | {
      readonly type: 'answer'
      readonly status: number
      readonly headers?: Record<string, string>
      readonly body?: string
    }
  /** The answer ends after so many bytes, without its end. */
  | { readonly type: 'cut'; readonly bytes: number }
  /** The connection ends before an answer. */
  | { readonly type: 'hang up' }
  /** No answer ever comes. */
  | { readonly type: 'silence' }
  /** The answer comes in pieces, with a pause before each. */
  | { readonly type: 'slow'; readonly pieces: number; readonly pauseMs: number }

export interface ScriptedRemote {
  readonly url: string
  /** The requests so far: method and path. */
  readonly requests: readonly string[]
  /** The next requests that match get these incidents, one after the other. */
  script(match: RegExp, ...incidents: readonly Incident[]): void
  /** Decides about every request by its body; null: it passes. */
  judge(judge: (line: string, body: string) => Incident | null): void
}

export async function scriptedRemote(t: Pick<Test, 'teardown'>, behind: string): Promise<ScriptedRemote> {
  const requests: string[] = []
  const scripts: { readonly match: RegExp; readonly incidents: Incident[] }[] = []
  let judged: (line: string, body: string) => Incident | null = () => null
  const server = createServer((incoming, outgoing) => {
    const line = `${incoming.method} ${incoming.url}`
    requests.push(line)
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.on('end', () => {
      const body = Buffer.concat(chunks)
      const script = scripts.find(({ match, incidents }) => incidents.length > 0 && match.test(line))
      const incident = script?.incidents.shift() ?? judged(line, body.toString())
      answer({ behind, incoming, outgoing, body, incident })
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    script: (match, ...incidents) => scripts.push({ match, incidents: [...incidents] }),
    judge: (judge) => {
      judged = judge
    },
  }
}

interface Exchange {
  readonly behind: string
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  readonly body: Buffer
  readonly incident: Incident | null
}

function answer({ behind, incoming, outgoing, body, incident }: Exchange): void {
  if (incident?.type === 'hang up') {
    outgoing.destroy()
    return
  }
  if (incident?.type === 'silence') return
  if (incident?.type === 'answer') {
    outgoing.writeHead(incident.status, { 'content-type': 'application/json', ...incident.headers })
    outgoing.end(incident.body ?? JSON.stringify({ error: 'scripted', reason: 'as the test says' }))
    return
  }
  const { method, headers } = incoming
  const passed = request(new URL(incoming.url ?? '/', behind), {
    method,
    headers: { ...headers, 'accept-encoding': 'identity' },
  })
  passed.on('response', (response) => {
    outgoing.writeHead(response.statusCode ?? 500, response.headers)
    if (incident?.type === 'cut') {
      response.once('data', (chunk: Buffer) => {
        outgoing.write(chunk.subarray(0, incident.bytes), () => outgoing.destroy())
      })
      return
    }
    if (incident?.type === 'slow') void trickle(response, outgoing, incident)
    else response.pipe(outgoing)
  })
  passed.on('error', () => outgoing.destroy())
  outgoing.on('close', () => passed.destroy())
  passed.end(body)
}

async function trickle(
  response: IncomingMessage,
  outgoing: ServerResponse,
  { pieces, pauseMs }: { readonly pieces: number; readonly pauseMs: number },
): Promise<void> {
  const body = Buffer.concat(await response.toArray())
  for (let n = 0; n < pieces && !outgoing.destroyed; n++) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
    outgoing.write(body.subarray((n * body.length) / pieces, ((n + 1) * body.length) / pieces))
  }
  outgoing.end()
}
