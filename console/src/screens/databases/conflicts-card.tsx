/** The documents in conflict, found by a search that continues on request. */
import { useEffect, useState } from 'preact/hooks'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import type { ConflictRow, Conflicts } from './database-answers.ts'
import { readConflicts } from './database-calls.ts'

const texts = en.databases.conflicts

/** Pages without a row that are searched in one go. */
const MAX_EMPTY_PAGES = 10

export function ConflictsCard({ database }: { readonly database: string }) {
  const [rows, setRows] = useState<readonly ConflictRow[]>([])
  const [searched, setSearched] = useState(0)
  const [bookmark, setBookmark] = useState<string | null | undefined>(undefined)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [round, setRound] = useState(0)
  const [isBusy, setBusy] = useState(true)
  useEffect(() => {
    const controller = new AbortController()
    setBusy(true)
    search(database, bookmark ?? undefined, controller.signal).then(
      (found) => {
        setRows((before) => [...before, ...found.rows])
        setSearched((before) => before + found.searched)
        setBookmark(found.bookmark)
        setFailure(null)
        setBusy(false)
      },
      (error: unknown) => {
        if (isAborted(error)) return
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
    return () => controller.abort()
  }, [database, round])
  const more = () => setRound(round + 1)
  const isFirst = bookmark === undefined
  return (
    <Card
      title={texts.title}
      lead={isFirst ? undefined : rows.length === 0 && bookmark === null ? texts.none : texts.lead}
    >
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={more} />}
      {isFirst && failure === null && <Skeleton lines={2} />}
      {rows.length > 0 && (
        <ul class="lines" aria-label={texts.title}>
          {rows.map(({ id, leaves }) => (
            <li key={id}>
              <a class="name" href={hashOf(['databases', database, 'documents', id])}>
                {id}
              </a>
              <span class="soft">{texts.versions(leaves)}</span>
            </li>
          ))}
        </ul>
      )}
      {!isFirst && (rows.length > 0 || bookmark !== null) && (
        <div class="row" aria-live="polite">
          <span class="soft">
            {bookmark === null ? texts.all(rows.length, searched) : texts.soFar(rows.length, searched)}
          </span>
          {bookmark !== null && (
            <Button isSmall isBusy={isBusy} onClick={more}>
              {texts.more}
            </Button>
          )}
        </div>
      )}
    </Card>
  )
}

/** One page, or the next that has a row: a large database may have few conflicts. */
async function search(
  database: string,
  bookmark: string | undefined,
  signal: AbortSignal,
): Promise<Conflicts> {
  let searched = 0
  let next = bookmark
  for (let page = 1; ; page++) {
    const found = await readConflicts(database, next, signal)
    searched += found.searched
    if (found.rows.length > 0 || found.bookmark === null || page === MAX_EMPTY_PAGES) {
      return { ...found, searched }
    }
    next = found.bookmark
  }
}
