/** The keys of section `[replicator]`. */
import { BOOLEAN, integer, type KnownKey, row } from './settee-keys.ts'

/** Defaults of replications, and how many run; protocol.md 14.1. */
export const REPLICATOR_KEYS: readonly KnownKey[] = [
  row('replicator', 'max_jobs', 500, integer(1, 5000), 'replications that run at once'),
  row('replicator', 'max_churn', 20, integer(1, 5000), 'replications that make room for others at once'),
  row(
    'replicator',
    'interval',
    60_000,
    integer(100, 86_400_000),
    'milliseconds until replications make room for others',
  ),
  row('replicator', 'use_checkpoints', 'true', BOOLEAN, 'whether a replication can be continued'),
  row(
    'replicator',
    'checkpoint_interval',
    30_000,
    integer(100, 3_600_000),
    'milliseconds between checkpoints',
  ),
  row('replicator', 'use_bulk_get', 'true', BOOLEAN, 'whether documents are fetched with _bulk_get'),
  row('replicator', 'worker_processes', 4, integer(1, 16), 'batches of one replication at once'),
  row('replicator', 'worker_batch_size', 500, integer(1, 2000), 'changes in one batch'),
  row(
    'replicator',
    'connection_timeout',
    30_000,
    integer(1000, 600_000),
    'milliseconds that a peer may be silent',
  ),
  row('replicator', 'http_connections', 20, integer(2, 1000), 'connections to one remote server'),
  row('replicator', 'retries_per_request', 5, integer(0, 50), 'further tries of each step'),
  row('replicator', 'update_docs', 'false', BOOLEAN, 'whether documents say more than their end'),
  row('replicator', 'verify_ssl_certificates', 'true', BOOLEAN, 'whether certificates of peers are checked'),
]
