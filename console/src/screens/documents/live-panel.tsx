import { useEffect, useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { Badge, ErrorNotice } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { clock, exactTime, number } from '../../strings/format.ts'
import { type LiveChange, LiveChanges } from './live-changes.ts'

const { documents: texts } = en

interface LivePanelProps {
  readonly database: string
  readonly onClose: () => void
  /** Called when changes have come. */
  readonly onChanges: () => void
}

/** The changes of a database as they come. */
export function LivePanel({ database, onClose, onChanges }: LivePanelProps) {
  const [live, setLive] = useState<LiveChanges | null>(null)
  useEffect(() => {
    const next = new LiveChanges(database)
    setLive(next)
    const unsubscribe = next.count.subscribe((count) => {
      if (count > 0) onChanges()
    })
    return () => {
      unsubscribe()
      next.close()
    }
  }, [database])
  if (live === null) return null
  const changes = live.changes.value
  return (
    <section class="live" aria-label={texts.liveTitle}>
      <header class="live-head">
        <h2>{texts.liveTitle}</h2>
        <span class="fine" role="status">
          {live.count.value === 0 ? texts.liveWaiting : texts.liveCount(live.count.value)}
        </span>
        <Button kind="quiet" icon="close" label={texts.liveClose} onClick={onClose} />
      </header>
      {live.failure.value !== null && <ErrorNotice failure={live.failure.value} title={texts.liveBroken} />}
      <ol class="live-changes">
        {changes.map((change) => (
          <Change key={change.seq} database={database} change={change} />
        ))}
      </ol>
      {changes.length === 0 && <p class="fine live-help">{texts.liveHelp}</p>}
    </section>
  )
}

function Change({
  database,
  change: { id, revs, isDeleted, at },
}: {
  readonly database: string
  readonly change: LiveChange
}) {
  return (
    <li>
      <a href={hashOf(['databases', database, 'documents', id])}>{id}</a>
      <span class="live-facts fine">
        <time dateTime={new Date(at).toISOString()} title={exactTime(at)}>
          {clock(at)}
        </time>
        <span class="is-code">{shortRev(revs[0] ?? '')}</span>
        {isDeleted && <Badge tone="bad">{texts.isDeleted}</Badge>}
        {revs.length > 1 && <Badge tone="warn">{texts.leaves(number(revs.length))}</Badge>}
      </span>
    </li>
  )
}

/** The generation and the beginning of a revision's digest, which tell revisions of one document apart. */
export function shortRev(rev: string): string {
  const dash = rev.indexOf('-')
  return dash === -1 || rev.length <= dash + 9 ? rev : `${rev.slice(0, dash + 9)}…`
}
