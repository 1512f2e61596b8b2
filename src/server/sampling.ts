/** Samples the running server once a minute, for `/_settee/samples`. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { FastifyInstance } from 'fastify'
import { clientsOfFeeds, requestsBy } from '../metrics/couch-stats.ts'
import { DataSize } from '../metrics/data-size.ts'
import { SampleFile, Sampler } from '../metrics/sampler.ts'
import type { Sampled } from '../metrics/samples.ts'
import type { SpaceWatch } from '../metrics/space-watch.ts'
import type { Databases } from '../threads/databases.ts'
import type { ServerContext } from './server-context.ts'

/** How often the delay of the event loop is measured, in ms: seldom, so that an idle server stays idle. */
const DELAY_RESOLUTION_MS = 250

/** Opens the samples of earlier runs; shutdown closes them. */
export async function openSamples({ dataDir, logger, shutdown }: ServerContext): Promise<SampleFile> {
  const file = await SampleFile.open(dataDir, logger)
  shutdown.add(() => file.close())
  return file
}

interface SampledParts {
  readonly file: SampleFile
  readonly app: FastifyInstance
  readonly databases: Pick<Databases, 'documentsWritten' | 'count'>
  readonly disk: Pick<SpaceWatch, 'space'>
}

/** Samples until shutdown. Asks no database thread, since that would wake an idle one every minute. */
export function startSampling({ dataDir, location, shutdown }: ServerContext, parts: SampledParts): void {
  const size = new DataSize(dataDir)
  // The size of a store is not that of this node's files.
  if (location.kind === 'files') size.start()
  const loop = new LoopShare()
  // Neither the start nor the end waits for the number of databases.
  const sampling = Sampler.begin(parts.file, async () => ({
    ...sampledTraffic(parts.app),
    ...loop.read(),
    saves: parts.databases.documentsWritten,
    databases: await parts.databases.count().catch(() => null),
    free_bytes: Number.isFinite(parts.disk.space.free) ? parts.disk.space.free : null,
    data_bytes: size.bytes,
    memory_bytes: residentBytes(),
  }))
  shutdown.add(async () => {
    void sampling.then((sampler) => sampler.close())
    loop.close()
    await size.close()
  })
}

type Traffic = 'answers_ok' | 'answers_4xx' | 'answers_5xx' | 'received_bytes' | 'sent_bytes'

function sampledTraffic({
  requestTally,
  connectionTally,
}: FastifyInstance): Pick<Sampled, Traffic | 'feeds' | 'connections'> {
  const counts = requestTally.counts()
  const answers = (from: number, below: number) =>
    requestsBy(counts, ({ status }) => status !== null && status >= from && status < below)
  const { openConnections, receivedBytes, sentBytes } = connectionTally.counts()
  return {
    answers_ok: answers(100, 400),
    answers_4xx: answers(400, 500),
    answers_5xx: answers(500, 600),
    received_bytes: receivedBytes,
    sent_bytes: sentBytes,
    feeds: clientsOfFeeds(counts),
    connections: openConnections,
  }
}

/** The delay of the event loop of this thread, and its busy share, since the last reading. */
class LoopShare {
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS })
  #utilization = performance.eventLoopUtilization()

  constructor() {
    this.#delay.enable()
  }

  read(): Pick<Sampled, 'delay' | 'busy'> {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, this.#utilization)
    this.#utilization = now
    const delay =
      this.#delay.count === 0 ? null : Math.max(0, this.#delay.max / 1e9 - DELAY_RESOLUTION_MS / 1000)
    this.#delay.reset()
    return { delay, busy: Number.isFinite(utilization) ? utilization : null }
  }

  close(): void {
    this.#delay.disable()
  }
}

/** null when no more files can be opened, because Node opens one for this. */
function residentBytes(): number | null {
  try {
    return process.memoryUsage.rss()
  } catch {
    return null
  }
}
