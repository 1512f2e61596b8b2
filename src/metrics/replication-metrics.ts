/** The replications of this server as metrics. */
import type { ReplicationJob } from '../replication/jobs/job.ts'
import { type Collector, collector, type Metric } from './metric.ts'

type Jobs = readonly Pick<ReplicationJob, 'state'>[]

const STATES = ['running', 'pending', 'crashing'] as const

export const REPLICATION_METRICS: readonly Metric<Jobs>[] = [
  {
    name: 'settee_replications',
    type: 'gauge',
    labels: ['state'],
    help: 'Replications of this server; those that are crashing have failed, and will be tried again.',
    read: (jobs) =>
      STATES.map((state) => {
        const value = jobs.filter((job) => job.state === state).length
        return { labels: { state }, value }
      }),
  },
]

/** @returns the collector of replications for `_prometheus` */
export function replicationCollector(replicator: { jobs(): Jobs }): Collector {
  return collector(REPLICATION_METRICS, () => replicator.jobs())
}
