/** The move of one database. It can be repeated after every interruption, and goes on where it was. */
import { createHash } from 'node:crypto'
import { COPYING_USER } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import { LOCAL_PREFIX, userNameOf } from '../core/ids.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { AUTH_DESIGN_ID } from '../documents/auth-design.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import type { BrokenFunction } from '../documents/database.ts'
import { Intake } from '../replication/intake.ts'
import { LocalPeer } from '../replication/local-peer.ts'
import type { RemoteDatabase, RemoteDatabaseInfo } from '../replication/remote/remote-database.ts'
import { Replication } from '../replication/replication.ts'
import type { ReplicationOptions } from '../replication/requests/replication-request.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { CheckpointTokens } from './checkpoint-tokens.ts'
import { compareFeeds, type FeedComparison } from './feed-comparison.ts'
import { readLocalDocs, storeLocalDocs } from './local-doc-moves.ts'
import { LocalDocSpool } from './local-doc-spool.ts'
import type { LoggedIds } from './logged-ids.ts'
import { copySecurity, endOf, prepareTarget, type TargetOptions } from './move-target.ts'
import { repeated } from './old-server.ts'
import { resolveTokens } from './resolve-tokens.ts'
import { compareSample, type SampleOutcome } from './sample-comparison.ts'

export type MovePhase = 'copying' | 'comparing' | 'checkpoints'

export interface DatabaseMoveOptions extends TargetOptions {
  readonly config: Config
  /** The room for answers in files. */
  readonly files: BodyFiles
  /** The ids of `_local` documents, for a server that does not list them. */
  readonly logged: LoggedIds
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
  /** Whether documents can be written: a validate function that does not compile refuses all of them. */
  readonly takesWrites: boolean
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
  const { databases, records, signal, files } = options
  const info = await repeated(signal, () => old.info(signal))
  const wasUsed = await prepareTarget(old, target, info, options)
  const here = await databases.get(target)
  const spool = await LocalDocSpool.open(files)
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
    const numbersOf = (await records.read(target))?.numbersOf ?? null
    await records.write(target, {
      oldServer: options.oldServer,
      isDone: true,
      end: await endOf(here),
      numbersOf,
    })
    const locked = target === databases.usersDatabase ? await lockedAccounts(here, signal) : NO_ACCOUNTS
    const broken = await here.brokenFunctions(SYSTEM_USER)
    return reportOf(target, comparison, {
      refusals,
      broken,
      locked,
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
    const comparison = await repeated(signal, async () =>
      compareFeeds(old, await databases.get(target), {
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
  { databases, config, files, signal, onProgress }: DatabaseMoveOptions,
): Promise<void> {
  refusals.clear()
  const replication = new Replication({
    source: old.peer,
    target: new LocalPeer({
      databases,
      name: target,
      user: COPYING_USER,
      address: target,
      create: async () => undefined,
    }),
    isSourceReadOnly: true,
    options: { ...OPTIONS, ...(fromBeginning && { sinceSeq: 0 }) },
    checkpointId: checkpointIdOf(old),
    intake: new Intake({ config, files, user: COPYING_USER }),
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

interface LockedAccounts {
  readonly count: number
  /** Some of their names. */
  readonly names: readonly string[]
}

const NO_ACCOUNTS: LockedAccounts = { count: 0, names: [] }

/** Accounts whose documents are in conflict, which lets nobody log in: the password of each revision may be another. */
async function lockedAccounts(users: DatabaseHandle, signal: AbortSignal): Promise<LockedAccounts> {
  let count = 0
  const names: string[] = []
  let bookmark: string | undefined
  do {
    signal.throwIfAborted()
    const page = await users.conflicts(SYSTEM_USER, {
      limit: CONFLICTS_PAGE,
      ...(bookmark !== undefined && { bookmark }),
    })
    const found = JSON.parse(Buffer.from(page).toString()) as ConflictsAnswer
    const accounts = found.rows.flatMap(({ id }) => userNameOf(id) ?? [])
    count += accounts.length
    names.push(...accounts.slice(0, SHOWN_ACCOUNTS - names.length))
    bookmark = found.bookmark ?? undefined
  } while (bookmark !== undefined)
  return { count, names }
}

const CONFLICTS_PAGE = 1000
const SHOWN_ACCOUNTS = 3

/** The JSON of `DatabaseHandle.conflicts`. */
interface ConflictsAnswer {
  readonly rows: readonly { readonly id: string }[]
  readonly bookmark: string | null
}

interface Outcome {
  readonly refusals: Refusals
  readonly broken: readonly BrokenFunction[]
  readonly locked: LockedAccounts
  readonly kept: number
  readonly sample: SampleOutcome
  readonly tokens: number
  readonly localDocs: number
  readonly hasList: boolean
}

function reportOf(
  name: string,
  comparison: FeedComparison,
  { refusals, broken, locked, kept, sample, tokens, localDocs, hasList }: Outcome,
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
    ...lockedNotes(locked),
    ...broken.map(brokenNote),
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
    takesWrites: !broken.some(isValidate),
    notes,
    oldDigest: comparison.oldDigest,
    newDigest: comparison.newDigest,
    sampled: sample.compared,
    localDocs,
    tokens,
  }
}

function lockedNotes({ count, names }: LockedAccounts): string[] {
  if (count === 0) return []
  const who = count === 1 ? `the account ${names[0]}` : `${count} accounts, such as ${names.join(', ')},`
  return [
    `${who} cannot log in: two revisions of the document are in conflict. settee passwd NAME sets a password and ends that`,
  ]
}

function isValidate({ path }: BrokenFunction): boolean {
  return path[0] === 'validate_doc_update'
}

function brokenNote(broken: BrokenFunction): string {
  const { ddoc, path, reason } = broken
  const effect = isValidate(broken) ? 'all writes are refused' : 'the view cannot be read'
  return `${effect}: ${path.join('.')} of ${ddoc} does not compile: ${reason.slice(0, MAX_FAULT)}`
}

const MAX_FAULT = 300
