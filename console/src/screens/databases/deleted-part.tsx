/** Deleted documents, and the way back for some of them. */
import { useState } from 'preact/hooks'
import { Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { bytes, exactTime } from '../../strings/format.ts'
import type { OverwrittenRow, RewindOutcome } from './database-answers.ts'
import { readDatabase, readOverwritten, rewindLines } from './database-calls.ts'
import type { DatabasePartProps } from './database-part.ts'
import { AdminsOnly } from './time-machine-part.tsx'
import { useMore } from './use-more.ts'
import './databases.css'
import './time-machine.css'

const texts = en.databases.deletedDocuments

export default function DeletedPart({ database }: DatabasePartProps) {
  const { data, failure, reload } = useLoad(async (signal) => {
    const row = await readDatabase(database, signal)
    if (row.role !== 'admin') return null
    return readOverwritten(database, { deleted: true }, signal)
  }, database)
  const more = useMore(data ?? undefined, (bookmark) =>
    readOverwritten(database, { deleted: true, bookmark }),
  )
  if (data === null) return <AdminsOnly />
  return (
    <div class="stack">
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && (
        <Card>
          <Skeleton lines={6} />
        </Card>
      )}
      {more?.rows.length === 0 && more.bookmark === null && (
        <Card>
          <Empty icon="trash" title={texts.none}>
            {texts.noneHelp}
          </Empty>
        </Card>
      )}
      {more !== null && more.rows.length > 0 && (
        <DeletedList database={database} rows={more.rows} onRestored={reload} />
      )}
      {more !== null && more.failure !== null && <ErrorNotice failure={more.failure} />}
      {more !== null && more.bookmark !== null && (
        <div class="row">
          <Button isBusy={more.isBusy} onClick={more.load}>
            {more.rows.length === 0 ? texts.searchOn : en.common.more}
          </Button>
        </div>
      )}
      {data?.known_since != null && (
        <p class="fine">{en.databases.timeMachine.knownSince(exactTime(data.known_since))}</p>
      )}
    </div>
  )
}

interface DeletedListProps {
  readonly database: string
  readonly rows: readonly OverwrittenRow[]
  readonly onRestored: () => void
}

function DeletedList({ database, rows, onRestored }: DeletedListProps) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const [problems, setProblems] = useState<readonly string[]>([])
  const isAll = rows.every(({ id }) => chosen.has(id))
  const toggle = (id: string) => {
    const next = new Set(chosen)
    if (!next.delete(id)) next.add(id)
    setChosen(next)
  }
  const restore = (some: readonly OverwrittenRow[]) =>
    confirm({
      title: texts.restoreTitle(some.length),
      effects: [texts.restoreEffect(some.length), en.databases.timeMachine.restoreDevices],
      undo: texts.restoreUndo,
      act: texts.restore(some.length),
      kind: 'primary',
      run: async () => {
        const left = await restoreAll(database, some)
        setProblems(left)
        setChosen(new Set())
        if (left.length < some.length) say(texts.restored(some.length - left.length))
        onRestored()
      },
    })
  return (
    <Card isFlush>
      <div class="list-bar">
        <label class="row">
          <input
            type="checkbox"
            checked={isAll}
            onChange={() => setChosen(isAll ? new Set() : new Set(rows.map(({ id }) => id)))}
          />
          {texts.all}
        </label>
        <Button
          kind="primary"
          icon="restore"
          disabled={chosen.size === 0}
          onClick={() => restore(rows.filter(({ id }) => chosen.has(id)))}
        >
          {texts.restore(chosen.size)}
        </Button>
      </div>
      {problems.length > 0 && (
        <Notice tone="warn" title={texts.notAll(problems.length)} isAnnounced>
          <ul class="plain-lines">
            {problems.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
        </Notice>
      )}
      <ul class="deleted-list" aria-label={texts.title}>
        {rows.map((row) => (
          <li key={row.id}>
            <label class="row grow">
              <input type="checkbox" checked={chosen.has(row.id)} onChange={() => toggle(row.id)} />
              <span class="grow">
                <span class="name">{row.id}</span>
                <span class="fine">{factsOf(row)}</span>
              </span>
            </label>
            <div class="actions">
              <LinkButton href={hashOf(['databases', database, 'time-machine', row.id])} isSmall>
                {texts.look}
              </LinkButton>
              <Button isSmall icon="restore" onClick={() => restore([row])}>
                {texts.restoreOne}
              </Button>
            </div>
          </li>
        ))}
      </ul>
    </Card>
  )
}

/** The newest version with content. */
function lastOf({ versions }: OverwrittenRow) {
  return versions.find(({ deleted }) => !deleted)
}

function factsOf(row: OverwrittenRow): string {
  const size = lastOf(row)?.size
  return texts.facts(row.at === null ? null : exactTime(row.at), size === undefined ? null : bytes(size))
}

const DONE: ReadonlySet<RewindOutcome> = new Set(['restored', 'recreated', 'unchanged'])

/**
 * Restores the last content of each, one after the other, since the server runs one rewind of a database at a time.
 * @returns why some were not restored @throws Failure when the server does not answer
 */
async function restoreAll(database: string, rows: readonly OverwrittenRow[]): Promise<readonly string[]> {
  const problems: string[] = []
  for (const row of rows) {
    const rev = lastOf(row)?.rev
    const problem = rev === undefined ? texts.noContent : await restoreOne(database, row.id, rev)
    if (problem !== null) problems.push(`${row.id}: ${problem}`)
  }
  return problems
}

async function restoreOne(database: string, id: string, rev: string): Promise<string | null> {
  let problem: string | null = null
  for await (const { outcome, error, reason } of rewindLines(database, { ids: [id], rev })) {
    if (error !== undefined && outcome === undefined) throw new Failure(0, error, reason ?? error, null)
    if (outcome !== undefined && !DONE.has(outcome)) {
      problem = reason ?? en.databases.timeMachine.outcomes[outcome]
    }
  }
  return problem
}
