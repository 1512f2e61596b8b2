/** The move of one database. It can be repeated after every interruption, and goes on where it was. */
import { createHash } from 'node:crypto'
import { SYSTEM_USER } from '../auth/accounts.ts'
import { CouchError } from '../core/errors.ts'
import { LOCAL_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { AUTH_DESIGN_ID } from '../documents/auth-design.ts'
import { LocalPeer } from '../replication/local-peer.ts'
import type { RemoteDatabase, RemoteDatabaseInfo } from '../replication/remote-server.ts'
import { Replication } from '../replication/replication.ts'
import type { ReplicationOptions } from '../replication/requests/replication-request.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { CheckpointTokens } from './checkpoint-tokens.ts'
import { compareFeeds, type FeedComparison } from './feed-comparison.ts'
import { readLocalDocs, storeLocalDocs } from './local-doc-moves.ts'
import { LocalDocSpool } from './local-doc-spool.ts'
import type { LoggedIds } from './logged-ids.ts'
import type { MoveRecords } from './move-records.ts'
import { repeated } from './old-server.ts'
import { resolveTokens } from './resolve-tokens.ts'
import { compareSample, type SampleOutcome } from './sample-comparison.ts'

export type MovePhase = 'copying' | 'comparing' | 'checkpoints'

export interface DatabaseMoveOptions {
  readonly databases: Databases
  readonly records: MoveRecords
  readonly tmpDir: string
  /** What identifies the old server: its uuid, or its address without one. */
  readonly oldServer: string
  /** The ids of `_local` documents, for a server that does not list them. */
  readonly logged: LoggedIds
  /** Whether to add to a database that was not made by this move. */
  readonly isMerged: boolean
  readonly signal: AbortSignal
  /** @param total null: unknown */
  onProgress(phase: MovePhase, done: number, total: number | null): void
}

/** What became of a database, for the report. */
export interface MovedDatabase {
  readonly name: string
  readonly documents: number
  readonly deleted: number
  readonly leaves: number
  /** Whether all leaves and winners of the old server are here. */
  readonly isComplete: boolean
  /** Documents that differ, or were changed here. */
  readonly notes: readonly string[]
  /** Digests of all leaves at the old server, and of the same documents here. */
  readonly oldDigest: string
  readonly newDigest: string
  /** Documents whose content and attachments were compared. */
  readonly sampled: number
  readonly localDocs: number
  /** Sequences of the old server from which devices can go on. */
  readonly tokens: number
}

/** Writes what another server has accepted as it is. */
const COPIER: UserCtx = { ...SYSTEM_USER, isCopying: true }

/** One batch at a time keeps the order of the feed, so that devices compare little again. */
const OPTIONS: ReplicationOptions = {
  isContinuous: false,
  createsTarget: false,
  createTargetParams: {},
  filter: {},
  isWinningRevsOnly: false,
  sinceSeq: undefined,
  usesCheckpoints: true,
  checkpointInterval: 5000,
  usesBulkGet: true,
  batchSize: 500,
  batches: 1,
  timeout: 60_000,
  retries: 8,
  sourceProxy: undefined,
  targetProxy: undefined,
}

const MAX_REFUSALS = 10
const PROGRESS_MS = 500
/** Comparisons, where much is missing after the first one. */
const MAX_ROUNDS = 3

/**
 * Copies a database with its `_local` documents, and remembers what the old server's sequences mean here.
 * @param target the name here
 * @throws PeerError; CouchError, among them conflict if another database has the name
 */
export async function moveDatabase(
  old: RemoteDatabase,
  target: string,
  options: DatabaseMoveOptions,
): Promise<MovedDatabase> {
  const { databases, records, signal, tmpDir } = options
  const info = await repeated(signal, () => old.info(signal))
  const wasUsed = await prepare(old, target, info, options)
  const here = databases.get(target)
  const spool = await LocalDocSpool.open(tmpDir)
  try {
    // A checkpoint must not say more than the documents that are copied after it was read.
    const tokens = new CheckpointTokens(info.updateSeq)
    const hasList = await readLocalDocs(old, spool, tokens, options.logged, signal)
    if (!wasUsed) await copySecurity(old, here, databases, signal)
    const { comparison, refusals } = await copyAndCompare(old, target, info, options)
    const remembered = await rememberTokens(old, here, tokens, comparison, options)
    const kept = await storeLocalDocs(here, spool, wasUsed, {
      signal,
      onProgress: (stored, total) => options.onProgress('checkpoints', stored, total),
    })
    const sample = await compareSample(old, here, comparison, signal)
    await records.write(target, { oldServer: options.oldServer, isDone: true, end: await endOf(here) })
    return reportOf(target, comparison, {
      refusals,
      kept,
      sample,
      tokens: remembered,
      localDocs: spool.count,
      hasList,
    })
  } finally {
    await spool.remove()
  }
}

/** @returns whether somebody else has written to the database here @throws conflict */
async function prepare(
  old: RemoteDatabase,
  target: string,
  info: RemoteDatabaseInfo,
  { databases, records, oldServer, isMerged, signal }: DatabaseMoveOptions,
): Promise<boolean> {
  const isUsers = target === databases.usersDatabase
  if (!databases.names().includes(target)) {
    await databases.create(target, { partitioned: info.isPartitioned }).catch((error: unknown) => {
      // couch_peruser makes databases, too.
      if (!(error instanceof CouchError && error.code === 'file_exists')) throw error
    })
  }
  const here = databases.get(target)
  const record = records.read(target)
  const { doc_count, doc_del_count } = await here.info(SYSTEM_USER)
  const isForeign = record === null ? doc_count + doc_del_count > 0 : record.oldServer !== oldServer
  if (isForeign && !isMerged && !isUsers) {
    throw new CouchError(
      'conflict',
      `The database ${target} exists here, and has not come from ${old.endpoint.shown}. Add --merge to add to it.`,
    )
  }
  // A device that comes before the copy is complete must not take a number of the old server for one of this database.
  await here.rememberTokens([{ token: '0', seq: 0 }])
  const wasUsed = isForeign || (record?.isDone === true && record.end !== (await endOf(here)))
  // Until the move is done, changes here are its own.
  if (!wasUsed) await records.write(target, { oldServer, isDone: false, end: await endOf(here) })
  const limit = wasUsed ? null : await repeated(signal, () => old.revsLimit(signal))
  if (limit !== null && limit > 0) await here.setRevsLimit(SYSTEM_USER, limit)
  return wasUsed
}

async function endOf(here: DatabaseHandle): Promise<string> {
  return (await here.info(SYSTEM_USER)).update_seq
}

/** Before the documents, so that nobody reads what the old server would not have shown. */
async function copySecurity(
  old: RemoteDatabase,
  here: DatabaseHandle,
  { usersDatabase }: Databases,
  signal: AbortSignal,
): Promise<void> {
  if (here.name === usersDatabase) return
  const text = await repeated(signal, () => old.security(signal))
  const security: unknown = text === null ? null : JSON.parse(text.toString())
  if (isJsonObject(security)) await here.setSecurity(SYSTEM_USER, security as SecurityObject)
}

interface Copied {
  readonly comparison: FeedComparison
  readonly refusals: Refusals
}

async function copyAndCompare(
  old: RemoteDatabase,
  target: string,
  info: RemoteDatabaseInfo,
  options: DatabaseMoveOptions,
): Promise<Copied> {
  const { databases, signal, onProgress } = options
  const total = info.documents + info.deleted
  const refusals = new Refusals()
  const isUsers = target === databases.usersDatabase
  const ownIds = new Set(isUsers ? [AUTH_DESIGN_ID] : [])
  const copy = (fromBeginning: boolean) => copyDocuments(old, target, fromBeginning, total, refusals, options)
  await copy(false)
  for (let round = 1; ; round++) {
    const comparison = await repeated(signal, () =>
      compareFeeds(old, databases.get(target), {
        signal,
        ownIds,
        // The second time, what an earlier copy has skipped is asked for again.
        copyAgain: () => copy(round > 1),
        onProgress: (rows) => onProgress('comparing', rows, total),
      }),
    )
    const isDone = comparison.missing.count <= refusals.count && !comparison.isOverfull
    if (isDone || round === MAX_ROUNDS) return { comparison, refusals }
  }
}

async function copyDocuments(
  old: RemoteDatabase,
  target: string,
  fromBeginning: boolean,
  total: number,
  refusals: Refusals,
  { databases, tmpDir, signal, onProgress }: DatabaseMoveOptions,
): Promise<void> {
  refusals.clear()
  const replication = new Replication({
    source: old.peer,
    target: new LocalPeer({
      databases,
      name: target,
      user: COPIER,
      address: target,
      create: async () => undefined,
    }),
    isSourceReadOnly: true,
    options: { ...OPTIONS, ...(fromBeginning && { sinceSeq: 0 }) },
    checkpointId: checkpointIdOf(old),
    tmpDir,
    signal,
    inTurn: (batch) => batch(),
    onRetry: () => undefined,
    onRefused: (id, reason) => refusals.add(id, reason),
  })
  const report = () => {
    const { stats, pending } = replication.progress
    const done = pending === null ? Math.min(stats.missing_checked, total) : Math.max(total - pending, 0)
    onProgress('copying', done, total)
  }
  const timer = setInterval(report, PROGRESS_MS)
  try {
    await replication.run()
  } finally {
    clearInterval(timer)
  }
}

/** Stays the same when this server takes over the uuid of the old one. */
function checkpointIdOf({ endpoint }: RemoteDatabase): string {
  const digest = createHash('sha256').update(endpoint.url).digest('hex').slice(0, 32)
  return `${LOCAL_PREFIX}settee-move-${digest}`
}

class Refusals {
  count = 0
  readonly reasons: string[] = []

  add(id: string, reason: string): void {
    this.count += 1
    if (this.reasons.length < MAX_REFUSALS) this.reasons.push(`${id}: ${reason}`)
  }

  clear(): void {
    this.count = 0
    this.reasons.length = 0
  }
}

/** @returns the number of positions of the old feed that have a meaning here */
async function rememberTokens(
  old: RemoteDatabase,
  here: DatabaseHandle,
  tokens: CheckpointTokens,
  { points, end }: FeedComparison,
  { signal, onProgress }: DatabaseMoveOptions,
): Promise<number> {
  const listed = tokens.list()
  onProgress('checkpoints', 0, listed.length)
  const known = points.list(end)
  const resolved = await resolveTokens(listed, { old: old.peer, here, known, end, signal })
  const all = [...known, ...resolved]
  await here.rememberTokens(all)
  return all.length
}

interface Outcome {
  readonly refusals: Refusals
  readonly kept: number
  readonly sample: SampleOutcome
  readonly tokens: number
  readonly localDocs: number
  readonly hasList: boolean
}

function reportOf(
  name: string,
  comparison: FeedComparison,
  { refusals, kept, sample, tokens, localDocs, hasList }: Outcome,
): MovedDatabase {
  const { live, deleted, leaves, missing, changedHere, onlyHere, differentWinners } = comparison
  const examples = (ids: readonly string[]) => ids.slice(0, 3).join(', ')
  const isChanged = changedHere.count > 0 || onlyHere > 0
  const hasOtherWinners = differentWinners.count > 0 && !isChanged && missing.count === 0
  const notes = [
    ...(missing.count > 0
      ? [`${missing.count} documents lack revisions here, such as ${examples(missing.ids)}`]
      : []),
    ...refusals.reasons.map((reason) => `refused: ${reason}`),
    ...(sample.different.length > 0 ? [`different content: ${examples(sample.different)}`] : []),
    ...(hasOtherWinners ? [`different winners: ${examples(differentWinners.ids)}`] : []),
    ...(changedHere.count > 0 ? [`${changedHere.count} documents have further revisions here`] : []),
    ...(onlyHere > 0 ? [`${onlyHere} documents exist only here`] : []),
    ...(kept > 0 ? [`kept ${kept} _local documents that were changed here`] : []),
    ...(hasList ? [] : [`the old server does not list _local documents: ${localDocs} were found by its log`]),
  ]
  return {
    name,
    documents: live,
    deleted,
    leaves,
    isComplete: missing.count === 0 && sample.different.length === 0 && !hasOtherWinners,
    notes,
    oldDigest: comparison.oldDigest,
    newDigest: comparison.newDigest,
    sampled: sample.compared,
    localDocs,
    tokens,
  }
}
