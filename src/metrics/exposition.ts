/** Metrics in Prometheus' text format. */
import { Gauge, Registry } from 'prom-client'
import { DATABASE_METRICS } from './database-metrics.ts'
import { HTTP_METRICS } from './http-metrics.ts'
import type { Family, Measurements, Metric } from './metric.ts'
import { PROCESS_METRICS } from './process-metrics.ts'

/** The media type of the text. */
export const EXPOSITION_TYPE: string = Registry.PROMETHEUS_CONTENT_TYPE

/** Every metric of this server; docs/operating.md lists them. */
export const METRICS: readonly Metric<Measurements>[] = [
  ...HTTP_METRICS,
  ...DATABASE_METRICS,
  ...PROCESS_METRICS,
]

/**
 * Writes metrics as text.
 * @throws Error if two have the same name, or a name is invalid
 */
export function exposition(families: readonly Family[]): Promise<string> {
  const registry = new Registry()
  for (const family of families) new PrecomputedGauge(family, registry)
  return registry.metrics()
}

type Values = ReturnType<Gauge['get']>

/**
 * A family whose values were counted elsewhere (docs/decisions/0017). For the library it is a gauge, whatever its type
 * is, which returns its values when the library reads it.
 */
class PrecomputedGauge extends Gauge {
  readonly #family: Family

  constructor(family: Family, registry: Registry) {
    const { name, help, labels = [] } = family
    super({ name, help, labelNames: labels, registers: [registry] })
    this.#family = family
  }

  override async get(): Values {
    const { name, help, type, samples } = this.#family
    const values = samples.map(({ labels = {}, value, suffix = '' }) => ({
      labels,
      value,
      metricName: name + suffix,
    }))
    // The library declares `type` as a numeric enum, which does not exist at run time.
    return { name, help, type, values, aggregator: 'sum' } as unknown as Awaited<Values>
  }
}
