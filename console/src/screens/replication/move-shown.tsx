/** A move or its plan: its state, its databases, and what comes next. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Meter } from '../../parts/meter.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { Card, Facts } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { bytes, duration, number, percent } from '../../strings/format.ts'
import { helpFor } from './job-words.ts'
import { type Move, shareOf } from './move-answers.ts'
import { MoveDatabases } from './move-databases.tsx'
import { MoveSettings } from './move-settings.tsx'

const { move: texts } = en.replication

interface MoveShownProps {
  readonly move: Move
  /** Whether the page still knows the address with the password. */
  readonly hasAddress: boolean
  onMove(): Promise<void>
  onPlan(): Promise<void>
  onStop(): Promise<void>
  onOther(): void
}

export function MoveShown({ move, hasAddress, onMove, onPlan, onStop, onOther }: MoveShownProps) {
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const act = (run: () => Promise<void>) => {
    setBusy(true)
    setFailure(null)
    run()
      .catch((error: unknown) => setFailure(asFailure(error)))
      .finally(() => setBusy(false))
  }
  const isRunning = move.ended_at === null
  const begin = (kind: 'primary' | 'plain', text: string) =>
    hasAddress ? (
      <Button kind={kind} icon="play" isBusy={isBusy} onClick={() => act(onMove)}>
        {text}
      </Button>
    ) : (
      <Button kind={kind} onClick={onOther}>
        {texts.enterAgain}
      </Button>
    )
  const other = (
    <Button kind="quiet" onClick={onOther}>
      {texts.other}
    </Button>
  )
  return (
    <>
      <Card title={titleOf(move)}>
        {isRunning && <Progress move={move} />}
        {!isRunning && move.state !== 'planned' && (
          <Ending
            move={move}
            actions={
              <>
                {begin('plain', texts.again)}
                {hasAddress && (
                  <Button kind="quiet" onClick={() => act(onPlan)}>
                    {texts.lookAgain}
                  </Button>
                )}
                {other}
              </>
            }
          />
        )}
        {move.plan !== null && <PlanFacts move={move} />}
        {move.state === 'planned' && (
          <>
            <Room move={move} />
            <div class="row">
              {begin('primary', texts.begin)}
              {other}
            </div>
          </>
        )}
        {isRunning && (
          <div class="row">
            <Button onClick={() => askToStop(onStop)}>{texts.stop}</Button>
            <span class="fine">{texts.goesOn}</span>
          </div>
        )}
        {failure !== null && <ErrorNotice failure={failure} />}
      </Card>
      {move.plan !== null && <MoveDatabases key={`${move.id} ${move.state}`} move={move} />}
      {move.settings !== null && move.settings.length > 0 && <MoveSettings move={move} />}
    </>
  )
}

function titleOf({ state, from }: Move): string {
  return texts.titles[state](from.replace(/\/$/, ''))
}

function Progress({ move }: { readonly move: Move }) {
  const { progress } = move
  const share = shareOf(move)
  return (
    <div class="stack" role="status">
      <p>
        {progress === null
          ? texts.reading
          : texts.progress(progress.database, progress.databases_done + 1, progress.databases_total)}
      </p>
      {progress !== null && (
        <>
          <Meter label={texts.progressLabel} value={share} max={1} warnAt={2} />
          <p class="fine">
            {percent(share)} · {texts.phases[progress.phase]}
            {progress.total !== null && ` · ${texts.documents(progress.documents, progress.total)}`}
          </p>
        </>
      )}
    </div>
  )
}

function PlanFacts({ move }: { readonly move: Move }) {
  const { plan, begun_at: begun, ended_at: ended } = move
  if (plan === null) return null
  const uuid = plan.uuid === null ? texts.noUuid : plan.takes_uuid ? texts.takesUuid : texts.keepsUuid
  return (
    <Facts
      facts={[
        { term: texts.server, value: plan.server },
        { term: texts.databaseCount, value: number(plan.databases) },
        { term: texts.documentCount, value: number(plan.documents) },
        { term: texts.size, value: sizeOf(plan) },
        { term: texts.uuid, value: uuid },
        ...(ended === null || move.dry_run
          ? []
          : [{ term: texts.took, value: duration((Date.parse(ended) - Date.parse(begun)) / 1000) }]),
      ]}
    />
  )
}

function sizeOf({ bytes: there, free_bytes: free }: NonNullable<Move['plan']>): string {
  return free === null ? bytes(there) : texts.sizes(bytes(there), bytes(free))
}

function Room({ move: { plan, settings } }: { readonly move: Move }) {
  if (plan === null) return null
  return (
    <>
      {plan.free_bytes !== null && plan.bytes > plan.free_bytes && <Notice tone="bad">{texts.noRoom}</Notice>}
      {settings === null && <Notice tone="warn">{texts.noSettings}</Notice>}
      {plan.databases === 0 && <Notice tone="warn">{texts.nothing}</Notice>}
    </>
  )
}

function Ending({ move, actions }: { readonly move: Move; readonly actions: ComponentChildren }) {
  const { state, error, results, has_uuid: hasUuid } = move
  if (state === 'failed' && error !== null) {
    return (
      <Notice tone="bad" title={texts.failed} actions={actions} isAnnounced>
        <p class="reason">{error.reason}</p>
        <p>{helpFor(error.reason) ?? texts.failedHelp}</p>
      </Notice>
    )
  }
  if (state === 'stopped') {
    return (
      <Notice tone="warn" title={texts.stopped} actions={actions} isAnnounced>
        {texts.stoppedHelp}
      </Notice>
    )
  }
  const lacking = results.incomplete + results.failed
  if (lacking > 0) {
    return (
      <Notice tone="bad" title={texts.lacking(lacking)} actions={actions} isAnnounced>
        {texts.lackingHelp}
      </Notice>
    )
  }
  return (
    <>
      <Notice tone="good" title={texts.complete(results.complete)} isAnnounced>
        {texts.completeHelp}
      </Notice>
      <h3>{texts.nextTitle}</h3>
      <ol class="next-steps">
        {texts.next.map((step) => (
          <li key={step}>{step}</li>
        ))}
        <li>{hasUuid === true ? texts.devices : texts.devicesCompare}</li>
      </ol>
      <div class="row">{actions}</div>
    </>
  )
}

function askToStop(onStop: () => Promise<void>): void {
  confirm({
    title: texts.stopTitle,
    effects: [texts.stopEffect],
    undo: texts.stopUndo,
    act: texts.stop,
    run: async () => {
      await onStop()
      say(texts.stopped)
    },
  })
}
