/** Metrics, statistics and health for monitoring; protocol.md 4.4, 15. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { requireMetricsReader } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { couchStats, statAt } from '../../metrics/couch-stats.ts'
import { databaseHealth, gatherFacts } from '../../metrics/health.ts'
import { type Collector, type Family, familiesOf, orNullAfter } from '../../metrics/metric.ts'
import { systemInfo } from '../../metrics/process-metrics.ts'
import { COLUMNS, type ColumnName, type SampleSeries } from '../../metrics/samples.ts'
import { sendJson, streamJson } from '../replies.ts'
import { pathParam, pathParams, queryOf } from '../request-params.ts'
import { checkNodeName, type Path } from '../route-table.ts'
import { needsNoSandbox } from '../transport/page-policy.ts'

export const metricsRoutes: readonly Path[] = [
  {
    url: '/_node/:node/_prometheus',
    allow: 'GET',
    access: 'metrics',
    methods: { GET: { handler: prometheus } },
  },
  { url: '/_node/:node/_stats', allow: 'GET', access: 'metrics', methods: { GET: { handler: stats } } },
  { url: '/_node/:node/_stats/*', allow: 'GET', access: 'metrics', methods: { GET: { handler: stats } } },
  { url: '/_node/:node/_system', allow: 'GET', access: 'metrics', methods: { GET: { handler: system } } },
  { url: '/_settee/samples', allow: 'GET,HEAD', access: 'metrics', methods: { GET: { handler: samples } } },
]

/** How long a collector may take, in milliseconds. */
const COLLECT_MS = 1000

async function prometheus(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const { collectors = [], logger } = request.server.services
  // Loaded at the first scrape, since most servers have none, and the library would slow their start.
  const { EXPOSITION_TYPE, exposition, METRICS } = await import('../../metrics/exposition.ts')
  const [measured, ...others] = await Promise.all([
    request.server.measure(),
    ...collectors.map((collect) => collected(collect, logger)),
  ])
  needsNoSandbox(reply.raw)
  return reply
    .type(EXPOSITION_TYPE)
    .send(await exposition([...familiesOf(METRICS, measured), ...others.flat()]))
}

/** A part of the server that fails or is late must not hide the metrics of the others. */
async function collected(collect: Collector, logger: Logger): Promise<readonly Family[]> {
  const collecting = collect().catch((err: unknown) => {
    logger.warn({ err }, 'a part of the server cannot report its metrics')
    return []
  })
  const families = await orNullAfter<readonly Family[]>(collecting, COLLECT_MS)
  if (families === null) logger.warn('a part of the server did not report its metrics in time')
  return families ?? []
}

async function stats(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  const { '*': path = '' } = pathParams(request)
  const names = path.split('/').filter((name) => name !== '')
  const found = statAt(couchStats(await request.server.measure()), names)
  return sendJson(reply, 200, found ?? null)
}

async function system(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  checkNode(request)
  return sendJson(reply, 200, systemInfo(await request.server.measure()))
}

async function samples(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { period = 'day' } = queryOf(request)
  if (period !== 'day' && period !== 'month')
    throw new CouchError('bad_request', '`period` must be day or month.')
  return streamJson(request, reply, 200, seriesText(request.server.services.samples.read(period, Date.now())))
}

/** A chunk for each column, and turns for others between them: all of a month take about 10 ms. */
async function* seriesText({ period, start, step, points, mean, max }: SampleSeries): AsyncGenerator<Buffer> {
  const yielder = new Yielder()
  const units = Object.fromEntries(COLUMNS.map(({ name, unit }) => [name, unit]))
  yield Buffer.from(JSON.stringify({ period, start, step, points, units }).slice(0, -1))
  yield* columnsText('mean', mean, yielder)
  if (max !== null) yield* columnsText('max', max, yielder)
  yield Buffer.from('}\n')
}

async function* columnsText(
  member: string,
  columns: Iterable<readonly [ColumnName, Float64Array]>,
  yielder: Yielder,
): AsyncGenerator<Buffer, void> {
  let before = `,"${member}":{`
  for (const [name, values] of columns) {
    // A value that is not known is NaN, which JSON writes as null.
    yield Buffer.from(`${before}"${name}":${JSON.stringify([...values])}`)
    before = ','
    await yielder.yieldIfDue()
  }
  yield Buffer.from('}')
}

/** @throws no_such_node */
function checkNode(request: FastifyRequest): void {
  checkNodeName(request.server.services.config, pathParam(request, 'node'))
}

export const upRoutes: readonly Path[] = [
  {
    url: '/_up',
    allow: 'GET,HEAD',
    access: 'public',
    methods: { GET: { handler: up, credentials: 'ignored', checksCredentials: isDeep } },
  },
]

/** Other values are ignored, as CouchDB does with unknown ones. */
function isDeep(request: FastifyRequest): boolean {
  const deep = queryOf(request).deep
  return deep === '1' || deep === 'true'
}

async function up(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  // CouchDB's answer in maintenance mode: load balancers send no further requests.
  if (request.server.draining.isOn) return sendJson(reply, 404, { status: 'maintenance_mode' })
  if (!isDeep(request)) return sendJson(reply, 200, { status: 'ok', seeds: {} })
  requireMetricsReader(request.user)
  const { databases, health = [] } = request.server.services
  const facts = await gatherFacts([databaseHealth(databases), ...health])
  const isWell = facts.every(({ ok }) => ok)
  return sendJson(reply, isWell ? 200 : 503, { status: isWell ? 'ok' : 'failing', seeds: {}, facts })
}
