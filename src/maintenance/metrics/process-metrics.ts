/** The metrics of the process, under the names that Prometheus' own libraries give them where they have one. */
import type { Measurements } from './measurements.ts'
import { type Metric, single } from './metric.ts'

export const PROCESS_METRICS: readonly Metric<Measurements>[] = [
  {
    name: 'couchdb_uptime_seconds',
    type: 'counter',
    help: 'Seconds since the process was started.',
    read: ({ process }) => single(process.uptime),
  },
  {
    name: 'couchdb_open_os_files',
    type: 'gauge',
    help: 'File descriptors that the process has open, connections among them; on Linux.',
    read: ({ process }) => single(process.openFiles),
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    help: 'When the process was started, in seconds since 1970.',
    read: ({ process }) => single(process.startedAt),
  },
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    help: 'Seconds of processor time, of all threads together.',
    read: ({ process }) => single(process.cpuSeconds),
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    help: 'Bytes of memory that the process takes.',
    read: ({ process }) => single(process.residentBytes),
  },
  {
    name: 'settee_data_free_bytes',
    type: 'gauge',
    help: 'Bytes that may still be written to the disk of the data folder.',
    read: ({ process }) => single(process.diskFreeBytes),
  },
  {
    name: 'settee_info',
    type: 'gauge',
    help: 'Always 1; the version is its label.',
    labels: ['version'],
    read: ({ version }) => [{ labels: { version }, value: 1 }],
  },
]
