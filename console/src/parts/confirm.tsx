/** Questions before acts that destroy something. */
import { signal } from '@preact/signals'
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../api/failure.ts'
import { en } from '../strings/en.ts'
import { Button } from './button.tsx'
import { Dialog } from './dialog.tsx'
import { Field } from './field.tsx'
import { ErrorNotice } from './notice.tsx'

export interface Question {
  readonly title: string
  /** What will happen, a paragraph each. */
  readonly effects: readonly string[]
  /** How it can be undone; null: it cannot. */
  readonly undo: string | null
  /** What the user must type; give it where the act cannot be undone. */
  readonly typed?: string
  /** The text of the button. */
  readonly act: string
  /** `danger` by default. */
  readonly kind?: 'danger' | 'primary'
  /** Does it. When it fails, the dialog stays and shows why. */
  run(): Promise<void>
}

const question = signal<Question | null>(null)

/** Asks the user, and does it if they agree. */
export function confirm(next: Question): void {
  question.value = next
}

/** Where the questions appear; once in the page. */
export function ConfirmHost() {
  const { value } = question
  return value === null ? null : <Confirm key={value.title} question={value} />
}

function Confirm({
  question: { title, effects, undo, typed, act, kind = 'danger', run },
}: {
  readonly question: Question
}) {
  const [text, setText] = useState('')
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const isReady = typed === undefined || text === typed
  const close = () => {
    if (!isBusy) question.value = null
  }
  const submit = () => {
    if (!isReady || isBusy) return
    setBusy(true)
    run().then(
      () => {
        question.value = null
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  const footer = (
    <>
      <Button onClick={close} disabled={isBusy}>
        {en.common.cancel}
      </Button>
      <Button kind={kind} type="submit" isBusy={isBusy} disabled={!isReady}>
        {act}
      </Button>
    </>
  )
  return (
    <Dialog title={title} footer={footer} onClose={close} onSubmit={submit}>
      {effects.map((effect) => (
        <p key={effect}>{effect}</p>
      ))}
      <p class={undo === null ? 'undo is-impossible' : 'undo'}>
        <strong>{undo === null ? en.common.cannotUndo : en.common.undo}</strong> {undo}
      </p>
      {typed !== undefined && (
        <Field label={en.common.typeName(typed)}>
          {(field) => (
            <input
              {...field}
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          )}
        </Field>
      )}
      {failure !== null && <ErrorNotice failure={failure} />}
    </Dialog>
  )
}
