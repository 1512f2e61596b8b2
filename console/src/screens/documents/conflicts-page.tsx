/** A document's conflicts: the winner beside one other live revision, and ways to settle it. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { JsonCompare } from '../../parts/json-editor/json-compare.tsx'
import { Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { DocumentHead } from './document-head.tsx'
import type { OpenDocument } from './document-text.ts'
import { LeaveGuard } from './leave-guard.tsx'
import { shortRev } from './live-panel.tsx'
import { isSavable, MergedState, Sides } from './save-conflict.tsx'
import { readDocument, settleConflict } from './stored-document.ts'

const { documents: texts } = en

interface ConflictsPageProps {
  readonly database: string
  readonly id: string
}

interface Pair {
  readonly winner: OpenDocument
  /** null: there is no conflict any more. */
  readonly other: OpenDocument | null
}

export function ConflictsPage({ database, id }: ConflictsPageProps) {
  const [chosen, setChosen] = useState<string | null>(null)
  const { data, failure, reload } = useLoad<Pair>(
    async (signal) => {
      const winner = await readDocument(database, id, undefined, signal)
      const rev = winner.conflicts.find((each) => each === chosen) ?? winner.conflicts[0]
      return { winner, other: rev === undefined ? null : await readDocument(database, id, rev, signal) }
    },
    JSON.stringify([database, id, chosen]),
  )
  if (data === undefined) {
    return (
      <div class="document">
        <DocumentHead database={database} id={id} />
        {failure === null ? (
          <Skeleton lines={12} />
        ) : (
          <ErrorNotice failure={failure} title={texts.documentNotRead} onRetry={reload} />
        )}
      </div>
    )
  }
  const { winner, other } = data
  if (other === null) {
    return (
      <div class="document">
        <DocumentHead database={database} id={id} document={winner} />
        <Empty
          title={texts.noConflict}
          icon="check"
          action={
            <LinkButton kind="primary" href={hashOf(['databases', database, 'documents', id])}>
              {texts.toDocument}
            </LinkButton>
          }
        >
          {texts.noConflictHelp}
        </Empty>
      </div>
    )
  }
  return (
    <div class="document">
      <DocumentHead database={database} id={id} document={winner}>
        <LinkButton href={hashOf(['databases', database, 'documents', id])}>{texts.toDocument}</LinkButton>
      </DocumentHead>
      {failure !== null && <ErrorNotice failure={failure} title={texts.documentNotRead} onRetry={reload} />}
      {winner.conflicts.length > 1 && (
        <div class="row">
          <label class="compare-choice">
            <span>{texts.compareWith(winner.conflicts.length)}</span>
            <select value={other.rev ?? ''} onChange={(event) => setChosen(event.currentTarget.value)}>
              {winner.conflicts.map((rev) => (
                <option key={rev} value={rev} selected={rev === other.rev}>
                  {shortRev(rev)}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      <Settle
        key={`${winner.rev} ${other.rev}`}
        database={database}
        winner={winner}
        other={other}
        onSettled={() => {
          setChosen(null)
          reload()
        }}
      />
    </div>
  )
}

interface SettleProps {
  readonly database: string
  readonly winner: OpenDocument
  readonly other: OpenDocument
  readonly onSettled: () => void
}

function Settle({ database, winner, other, onSettled }: SettleProps) {
  const [merged, setMerged] = useState(winner.body)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const isMerged = merged !== winner.body
  const left = texts.otherSide(shortRev(other.rev ?? ''))
  const right = texts.winnerSide(shortRev(winner.rev ?? ''))
  const done = () => {
    say(winner.conflicts.length > 1 ? texts.settledMore(winner.conflicts.length - 1) : texts.settled)
    if (winner.conflicts.length > 1) onSettled()
    else go(hashOf(['databases', database, 'documents', winner.id]))
  }
  const keep = (kept: OpenDocument, loser: OpenDocument, side: string) =>
    confirm({
      title: texts.keepTitle(side),
      effects: [texts.keepEffect(shortRev(loser.rev ?? '')), texts.deleteDevices],
      undo: texts.keepUndo,
      act: texts.keepAct,
      run: async () => {
        await settleConflict(database, kept, loser, null)
        setMerged(winner.body)
        done()
      },
    })
  const saveMerged = () => {
    setBusy(true)
    setFailure(null)
    settleConflict(database, winner, other, merged)
      .then(
        () => {
          setMerged(winner.body)
          done()
        },
        (error: unknown) => setFailure(asFailure(error)),
      )
      .finally(() => setBusy(false))
  }
  return (
    <>
      {isMerged && !isBusy && <LeaveGuard onDiscard={() => setMerged(winner.body)} />}
      {failure !== null && (
        <ErrorNotice
          failure={failure}
          title={texts.notSettled}
          {...(failure.status === 409 && { onRetry: onSettled })}
        />
      )}
      <Notice tone="info">{texts.settleHelp}</Notice>
      <Sides left={left} right={right} />
      <div class="compare-frame">
        <JsonCompare
          left={other.body}
          right={merged}
          leftLabel={left}
          rightLabel={right}
          onChange={setMerged}
        />
      </div>
      {!sameAttachments(winner, other) && <Notice tone="warn">{texts.attachmentsDiffer}</Notice>}
      <MergedState text={merged}>
        <Button onClick={() => keep(other, winner, left)}>{texts.keepOther}</Button>
        <Button onClick={() => keep(winner, other, right)}>{texts.keepWinner}</Button>
        <Button
          kind="primary"
          isBusy={isBusy}
          disabled={!isMerged || !isSavable(merged)}
          onClick={saveMerged}
        >
          {texts.saveMerged}
        </Button>
      </MergedState>
    </>
  )
}

function sameAttachments(one: OpenDocument, other: OpenDocument): boolean {
  const named = ({ attachments }: OpenDocument) =>
    attachments
      .map(({ name, length, type }) => JSON.stringify([name, length, type]))
      .sort()
      .join()
  return named(one) === named(other)
}
