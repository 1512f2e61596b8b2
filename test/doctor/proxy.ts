/** A proxy with the faults that settings cause in real proxies. */
import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type ServerResponse,
  request as send,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'

export interface ProxyFaults {
  /** Its own `Server` header, instead of the server's. */
  readonly name?: string
  /** Whether to buffer answers until they are complete. */
  readonly buffers?: boolean
  /** How many chunks of a feed to pass on before buffering the rest. */
  readonly stopsAfter?: number
  /** Milliseconds after which answers to `_changes` are cut. */
  readonly cutsAfter?: number
  /** As `cutsAfter`, but counted from the last byte. */
  readonly cutsIdleAfter?: number
  /** The maximum body in bytes. Above it, the proxy answers 413 in HTML; with `reset`, it closes the connection. */
  readonly maxBody?: number
  readonly refusal?: 'html' | 'reset'
  /** Milliseconds after which answers to `_changes` end normally, as if they were complete. */
  readonly endsAfter?: number
  /** Whether large bodies never get an answer. */
  readonly swallows?: boolean
  /** Milliseconds for each 64 kB of a large body; Infinity: stops after the first 64 kB. */
  readonly readsEvery?: number
  /** Requests that are passed on, but whose answers are lost, because the connection is closed. */
  readonly loses?: (request: IncomingMessage) => boolean
  readonly addHeaders?: OutgoingHttpHeaders
  /** Headers of answers, instead of the server's. */
  readonly setHeaders?: Readonly<Record<string, string | string[]>>
  readonly dropHeaders?: readonly string[]
  readonly dropRequestHeaders?: readonly string[]
  readonly setRequestHeaders?: OutgoingHttpHeaders
  readonly rewrite?: (path: string) => string
  /** The proxy's own answer; undefined: it passes the request on. */
  readonly own?: (request: IncomingMessage) => OwnAnswer | undefined
}

export interface OwnAnswer {
  readonly status: number
  readonly headers?: OutgoingHttpHeaders
  readonly text?: string
}

const HTML = '<html><head><title>413 Request Entity Too Large</title></head></html>'

/** Runs a proxy in front of a server until the test ends. @returns the port of the proxy */
export async function startProxy(t: Test, target: string, faults: ProxyFaults): Promise<number> {
  const server = createServer((request, response) => {
    void pass(request, response, new URL(target), faults).catch(() => response.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return (server.address() as AddressInfo).port
}

async function pass(
  request: IncomingMessage,
  response: ServerResponse,
  { hostname, port }: URL,
  faults: ProxyFaults,
): Promise<void> {
  const own = faults.own?.(request) ?? tooLarge(request, faults)
  if (own === 'reset') return void request.socket.destroy()
  if (own !== undefined) return answer(request, response, faults, own)
  const isLarge = Number(request.headers['content-length'] ?? 0) > 1024
  if (faults.swallows && isLarge) return void request.resume()
  if (faults.readsEvery !== undefined && isLarge) return readSlowly(request, faults.readsEvery)
  const { method, url = '/' } = request
  const path = faults.rewrite?.(url) ?? url
  const upstream = send({ hostname, port, method, path, headers: headersFor(request, faults) })
  request.pipe(upstream)
  response.on('close', () => upstream.destroy())
  const [answered] = (await once(upstream, 'response')) as [IncomingMessage]
  if (faults.loses?.(request)) return void request.socket.destroy()
  response.writeHead(answered.statusCode!, headersOf(answered.headers, faults))
  await move(request, answered, response, faults)
}

/** Small buffers: a body that fits into the system's buffers would be sent at once. */
function readSlowly(request: IncomingMessage, every: number): void {
  request.once('data', () => {
    request.pause()
    if (every === Number.POSITIVE_INFINITY) return
    const timer = setInterval(() => request.read(65_536), every)
    request.on('close', () => clearInterval(timer))
  })
}

function tooLarge(
  { headers }: IncomingMessage,
  { maxBody, refusal = 'html' }: ProxyFaults,
): OwnAnswer | 'reset' | undefined {
  if (maxBody === undefined || Number(headers['content-length'] ?? 0) <= maxBody) return undefined
  return refusal === 'reset' ? 'reset' : { status: 413, headers: { 'content-type': 'text/html' }, text: HTML }
}

/** As nginx: answers at once, and closes the connection during the rest of the body. */
function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { name }: ProxyFaults,
  { status, headers = {}, text = '' }: OwnAnswer,
): void {
  response.writeHead(status, { ...(name !== undefined && { server: name }), connection: 'close', ...headers })
  response.end(text)
  request.resume()
}

function headersFor(
  { headers }: IncomingMessage,
  { dropRequestHeaders = [], setRequestHeaders }: ProxyFaults,
) {
  return { ...without(headers, dropRequestHeaders), ...setRequestHeaders }
}

function headersOf(headers: IncomingHttpHeaders, faults: ProxyFaults): OutgoingHttpHeaders {
  const { name, dropHeaders = [], addHeaders = {}, setHeaders } = faults
  const kept: OutgoingHttpHeaders = without(headers, [
    ...dropHeaders,
    ...(name === undefined ? [] : ['server']),
  ])
  for (const [each, value] of Object.entries(addHeaders)) {
    kept[each] = [kept[each], value].flat().filter((one) => one !== undefined) as string[]
  }
  return { ...kept, ...setHeaders, ...(name !== undefined && { server: name }) }
}

function without(headers: IncomingHttpHeaders, names: readonly string[]): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !names.includes(name)))
}

async function move(
  request: IncomingMessage,
  from: IncomingMessage,
  to: ServerResponse,
  faults: ProxyFaults,
): Promise<void> {
  const { buffers = false, stopsAfter = Number.POSITIVE_INFINITY } = faults
  const { cutsAfter, cutsIdleAfter, endsAfter } = faults
  if (!buffers) to.flushHeaders()
  const isFeed = request.url?.includes('/_changes') === true
  const cut = () => to.destroy()
  let idle: NodeJS.Timeout | undefined
  const watch = () => {
    clearTimeout(idle)
    if (isFeed && cutsIdleAfter !== undefined) idle = setTimeout(cut, cutsIdleAfter)
  }
  const timer = isFeed && cutsAfter !== undefined ? setTimeout(cut, cutsAfter) : undefined
  const end = isFeed && endsAfter !== undefined ? setTimeout(() => to.end(), endsAfter) : undefined
  watch()
  const kept: Buffer[] = []
  let passed = 0
  for await (const chunk of from as AsyncIterable<Buffer>) {
    watch()
    passed += 1
    if (buffers || (isFeed && passed > stopsAfter)) kept.push(chunk)
    else if (!to.writableEnded) to.write(chunk)
  }
  clearTimeout(timer)
  clearTimeout(end)
  clearTimeout(idle)
  to.end(Buffer.concat(kept))
}
