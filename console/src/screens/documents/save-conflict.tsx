import { useState } from 'preact/hooks'
import type { Failure } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { findObjectFault, formatJson } from '../../parts/json-editor/exact-json.ts'
import { JsonCompare } from '../../parts/json-editor/json-compare.tsx'
import { faultText } from '../../parts/json-editor/json-editor.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'
import { type OpenDocument, reservedMember } from './document-text.ts'

const { documents: texts } = en

interface SaveConflictProps {
  /** What is stored now. */
  readonly theirs: OpenDocument
  /** What the user wants to save. */
  readonly mine: string
  readonly failure: Failure | null
  readonly isSaving: boolean
  readonly onSave: (merged: string) => void
  readonly onDiscard: () => void
}

/** Somebody else has saved meanwhile: both sides, and a way to join them. */
export function SaveConflict({ theirs, mine, failure, isSaving, onSave, onDiscard }: SaveConflictProps) {
  // Formatted as what is stored, so that only what differs in substance is marked.
  const [merged, setMerged] = useState(() => (findObjectFault(mine) === null ? formatJson(mine) : mine))
  return (
    <>
      <Notice tone="warn" title={texts.changedMeanwhile} isAnnounced>
        {theirs.isDeleted ? texts.deletedMeanwhile : texts.changedMeanwhileHelp}
      </Notice>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notSaved} />}
      <Sides left={texts.storedSide} right={texts.yourSide} />
      <div class="compare-frame">
        <JsonCompare
          left={theirs.isDeleted ? '' : theirs.body}
          right={merged}
          leftLabel={texts.storedSide}
          rightLabel={texts.yourSide}
          onChange={setMerged}
        />
      </div>
      <MergedState text={merged}>
        <Button onClick={onDiscard}>{texts.takeStored}</Button>
        <Button kind="primary" isBusy={isSaving} disabled={!isSavable(merged)} onClick={() => onSave(merged)}>
          {texts.saveMine}
        </Button>
      </MergedState>
    </>
  )
}

/** The titles above both sides; on narrow screens, what the colours mean. */
export function Sides({ left, right }: { readonly left: string; readonly right: string }) {
  return (
    <div class="compare-sides">
      <span class="compare-side is-left">{left}</span>
      <span class="compare-side is-right">{right}</span>
    </div>
  )
}

export function isSavable(text: string): boolean {
  return findObjectFault(text) === null && reservedMember(text) === null
}

/** What is wrong with a merged text, beside the buttons that save it. */
export function MergedState({
  text,
  children,
}: {
  readonly text: string
  readonly children: preact.ComponentChildren
}) {
  const fault = findObjectFault(text)
  const reserved = fault === null ? reservedMember(text) : null
  const problem =
    fault !== null ? faultText(text, fault) : reserved !== null ? texts.reserved(reserved.name) : ''
  return (
    <div class="compare-foot">
      <span class="field-error" role="status">
        {problem}
      </span>
      <div class="actions">{children}</div>
    </div>
  )
}
