/** Takes the whole database back to a time: first a preview, then the rewind with its progress. */
import { useEffect, useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { exactTime, number } from '../../strings/format.ts'
import type { RewindLine, RewindOutcome } from './database-answers.ts'
import { fromLocal, toLocal } from './local-time.ts'
import { changedBy, type RewindState, useRewind } from './rewind-run.ts'

const texts = en.databases.rewind

interface RewindCardProps {
  readonly database: string
  /** A time that a link has chosen; it is previewed at once. */
  readonly at?: string | undefined
}

export function RewindCard({ database, at }: RewindCardProps) {
  const [local, setLocal] = useState(toLocal(at))
  // A link's time is exact to the ms, and the field's is not.
  const [exact, setExact] = useState(at)
  const [error, setError] = useState<string | null>(null)
  const run = useRewind(database)
  const { state } = run
  const time = () => exact ?? fromLocal(local, 0)
  const change = (text: string) => {
    setLocal(text)
    setExact(undefined)
    run.forget()
  }
  const preview = () => {
    const then = time()
    setError(then === undefined ? texts.needTime : null)
    if (then !== undefined) void run.start({ at: then, dry_run: true })
  }
  useEffect(() => {
    if (at !== undefined && fromLocal(toLocal(at), 0) !== undefined) preview()
  }, [])
  const act = (planned: RewindState) => {
    const then = planned.at ?? time()
    if (then === undefined) return
    const { restored, recreated, deleted } = planned.counts
    confirm({
      title: texts.confirmTitle(database, exactTime(then)),
      effects: [texts.effect(restored, recreated, deleted), texts.devices],
      undo: texts.undo(exactTime(new Date())),
      act: texts.act(changedBy(planned.counts)),
      // The dialog closes, and the card shows the progress.
      run: async () => void run.start({ at: then }),
    })
  }
  return (
    <Card title={texts.title} lead={texts.lead}>
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault()
          preview()
        }}
      >
        <TextField
          label={texts.time}
          type="datetime-local"
          error={error}
          value={local}
          disabled={state?.isRunning === true}
          onChange={change}
        />
        <Button type="submit" isBusy={state?.isRunning === true && state.isDry}>
          {texts.preview}
        </Button>
      </form>
      {state !== null && (
        <RewindReport
          database={database}
          state={state}
          onStop={run.stop}
          onAct={() => act(state)}
          onUndo={() => {
            setLocal(toLocal(state.begunAt))
            setExact(state.begunAt)
            void run.start({ at: state.begunAt, dry_run: true })
          }}
        />
      )}
    </Card>
  )
}

interface RewindReportProps {
  readonly database: string
  readonly state: RewindState
  readonly onStop: () => void
  readonly onAct: () => void
  readonly onUndo: () => void
}

function RewindReport({ database, state, onStop, onAct, onUndo }: RewindReportProps) {
  const { isDry, isRunning, isStopped, failure, counts, at } = state
  const changed = changedBy(counts)
  if (isRunning) return <Running state={state} onStop={onStop} />
  if (failure !== null && state.lookedAt === 0) {
    return <ErrorNotice failure={failure} title={isDry ? texts.notPreviewed : texts.notDone} />
  }
  const when = at === null ? '' : exactTime(at)
  return (
    <div class="stack" aria-live="polite">
      {failure !== null && <ErrorNotice failure={failure} title={isDry ? texts.notPreviewed : texts.cut} />}
      {isStopped && <Notice tone="info" title={isDry ? texts.previewStopped : texts.stopped(changed)} />}
      {!isStopped && failure === null && (
        <Notice
          tone={changed === 0 || isDry ? 'info' : 'good'}
          title={isDry ? texts.wouldChange(changed, when) : texts.changed(changed, when)}
        />
      )}
      <Counts state={state} />
      <Listed database={database} state={state} />
      <div class="actions">
        {isDry && !isStopped && failure === null && changed > 0 && (
          <Button kind="danger" icon="restore" onClick={onAct}>
            {texts.act(changed)}
          </Button>
        )}
        {!isDry && changed > 0 && (
          <Button icon="restore" onClick={onUndo}>
            {texts.previewUndo}
          </Button>
        )}
      </div>
    </div>
  )
}

function Running({ state, onStop }: { readonly state: RewindState; readonly onStop: () => void }) {
  const { isDry, documents, lookedAt } = state
  return (
    <div class="stack" role="status">
      <p>{isDry ? texts.previewing : texts.running}</p>
      <progress max={Math.max(1, documents)} value={lookedAt} aria-label={texts.progress} />
      <div class="row">
        <span class="soft">{texts.progressOf(lookedAt, documents)}</span>
        <Button isSmall onClick={onStop}>
          {texts.stop}
        </Button>
      </div>
    </div>
  )
}

const OUTCOMES: readonly RewindOutcome[] = [
  'restored',
  'recreated',
  'deleted',
  'unchanged',
  'expired',
  'newer',
  'refused',
]

function Counts({ state: { counts, isDry } }: { readonly state: RewindState }) {
  const shown = OUTCOMES.filter((outcome) => counts[outcome] > 0)
  return (
    <ul class="counts">
      {shown.map((outcome) => (
        <li key={outcome}>
          <strong>{number(counts[outcome])}</strong>{' '}
          <span>{(isDry ? texts.planned : texts.outcomes)[outcome]}</span>
        </li>
      ))}
    </ul>
  )
}

function Listed({
  database,
  state: { listed, isDry, counts },
}: {
  readonly database: string
  readonly state: RewindState
}) {
  if (listed.length === 0) return null
  const all = OUTCOMES.reduce((sum, outcome) => sum + (outcome === 'unchanged' ? 0 : counts[outcome]), 0)
  return (
    <details open={listed.length <= 20}>
      <summary>{listed.length < all ? texts.firstOf(listed.length, all) : texts.which}</summary>
      <ul class="lines">
        {listed.map((line) => (
          <li key={line.id}>
            <a class="name" href={hashOf(['databases', database, 'time-machine', line.id ?? ''])}>
              {line.id}
            </a>
            <span class="soft">{outcomeText(line, isDry)}</span>
          </li>
        ))}
      </ul>
    </details>
  )
}

function outcomeText({ outcome = 'unchanged', reason }: RewindLine, isDry: boolean): string {
  const text = (isDry ? texts.plannedOne : texts.outcomeOne)[outcome]
  return reason === undefined ? text : `${text}: ${reason}`
}
