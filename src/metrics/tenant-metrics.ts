/** What each tenant takes, in hosted mode. */
import type { Hosted } from '../hosted/hosted.ts'
import { type Collector, collector, type Metric } from './metric.ts'

type Taken = ReturnType<Hosted['tenantUsage']>

/** Accounts that are told of, those that take most: a scrape is one text. */
const MAX_ACCOUNTS = 5000

function gauge(name: string, help: string, numberOf: (taken: Taken[number]) => number): Metric<Taken> {
  return {
    name,
    type: 'gauge',
    help,
    labels: ['account'],
    read: (taken) => taken.map((each) => ({ labels: { account: each.account }, value: numberOf(each) })),
  }
}

const TENANT_METRICS: readonly Metric<Taken>[] = [
  gauge('settee_tenant_bytes', "Bytes of an account's databases.", ({ bytes }) => bytes),
  gauge('settee_tenant_documents', "Documents in an account's databases.", ({ documents }) => documents),
  gauge('settee_tenant_databases', 'Databases of an account.', ({ databases }) => databases),
  gauge('settee_tenant_feeds', 'Waiting feeds of an account.', ({ feeds }) => feeds),
]

/** @returns what `_prometheus` asks of tenants */
export function tenantCollector(hosted: Pick<Hosted, 'tenantUsage'>): Collector {
  return collector(TENANT_METRICS, () =>
    hosted
      .tenantUsage()
      .toSorted((a, b) => b.bytes - a.bytes)
      .slice(0, MAX_ACCOUNTS),
  )
}
