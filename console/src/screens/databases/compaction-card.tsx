/** Starts a compaction, and says what it gave back. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { bytes } from '../../strings/format.ts'
import type { DatabaseRow } from './database-answers.ts'
import { readDatabase } from './database-calls.ts'

const texts = en.databases.compaction

/** How often a running compaction is looked at, in ms. */
const LOOK_MS = 500

interface CompactionCardProps {
  readonly database: DatabaseRow
  readonly onChange: () => void
}

export function CompactionCard({ database, onChange }: CompactionCardProps) {
  const { name } = database
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isStarted, setStarted] = useState(false)
  const [outcome, setOutcome] = useState<string | null>(null)
  const leaving = useRef(new AbortController())
  useEffect(() => {
    const controller = new AbortController()
    leaving.current = controller
    return () => controller.abort()
  }, [name])
  const isRunning = isStarted || database.compact_running
  const start = () => {
    const { signal } = leaving.current
    const before = database.sizes.file
    setStarted(true)
    setFailure(null)
    setOutcome(null)
    compact(name, signal)
      .then(
        (after) =>
          setOutcome(after < before ? texts.freed(bytes(before - after), bytes(after)) : texts.nothing),
        (error: unknown) => {
          if (!signal.aborted) setFailure(asFailure(error))
        },
      )
      .finally(() => {
        if (signal.aborted) return
        setStarted(false)
        onChange()
      })
  }
  return (
    <Card title={texts.title} lead={texts.lead}>
      <div class="actions">
        <Button isBusy={isRunning} onClick={start}>
          {isRunning ? texts.running : texts.start}
        </Button>
      </div>
      {failure !== null && <ErrorNotice failure={failure} title={texts.failed} />}
      {outcome !== null && (
        <Notice tone="good" isAnnounced>
          {outcome}
        </Notice>
      )}
    </Card>
  )
}

/** @returns the size of the file when the compaction has ended */
async function compact(name: string, signal: AbortSignal): Promise<number> {
  await ask(pathOf(name, '_compact'), { json: {}, signal })
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
    signal.throwIfAborted()
    const row = await readDatabase(name, signal)
    if (!row.compact_running) return row.sizes.file
  }
}
