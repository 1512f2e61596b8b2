/** A dialog that starts a replication. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { CheckField, Field, SelectField, TextField } from '../../parts/field.tsx'
import { ErrorNotice } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'
import { EndpointFields } from './endpoint-fields.tsx'
import { startReplication } from './job-acts.ts'
import { type JobInput, jobFaults, NEW_JOB } from './job-body.ts'

const { newJob: texts } = en.replication

interface NewJobDialogProps {
  onClose(): void
  onStarted(isEnded: boolean): void
  /** One that is not kept has ended later. @param reason of a failure; null: it was complete */
  onEnd(reason: string | null): void
}

export function NewJobDialog({ onClose, onStarted, onEnd }: NewJobDialogProps) {
  const [input, setInput] = useState<JobInput>(NEW_JOB)
  const [isTried, setTried] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const set = (change: Partial<JobInput>) => setInput((old) => ({ ...old, ...change }))
  const faults = jobFaults(input)
  const shown = isTried ? faults : {}
  const submit = () => {
    setTried(true)
    setFailure(null)
    if (Object.keys(faults).length > 0 || isBusy) return
    setBusy(true)
    startReplication(input, (error) => onEnd(error === null ? null : asFailure(error).message)).then(
      (outcome) => onStarted(outcome === 'ended'),
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  const footer = <DialogButtons act={texts.act} isBusy={isBusy} onCancel={onClose} />
  return (
    <Dialog title={texts.title} footer={footer} isWide onClose={onClose} onSubmit={submit}>
      <p class="soft">{texts.lead}</p>
      <div class="grid">
        <EndpointFields
          legend={texts.source}
          value={input.source}
          error={shown.source}
          onChange={(source) => set({ source })}
        />
        <div class="stack">
          <EndpointFields
            legend={texts.target}
            value={input.target}
            error={shown.target}
            onChange={(target) => set({ target })}
          />
          <CheckField
            label={texts.create}
            hint={texts.createHint}
            isOn={input.createsTarget}
            onChange={(createsTarget) => set({ createsTarget })}
          />
        </div>
      </div>
      <div class="grid">
        <SelectField
          label={texts.when}
          value={input.isContinuous ? 'always' : 'once'}
          options={[
            ['once', texts.once],
            ['always', texts.always],
          ]}
          hint={input.isContinuous ? texts.alwaysHint : texts.onceHint}
          onChange={(value) => set({ isContinuous: value === 'always' })}
        />
        <SelectField
          label={texts.keep}
          value={input.isKept ? 'document' : 'memory'}
          options={[
            ['document', texts.inDocument],
            ['memory', texts.inMemory],
          ]}
          hint={input.isKept ? texts.inDocumentHint : texts.inMemoryHint}
          onChange={(value) => set({ isKept: value === 'document' })}
        />
        {input.isKept && (
          <TextField
            label={texts.id}
            hint={texts.idHint}
            value={input.id}
            error={shown.id}
            onChange={(id) => set({ id })}
            isCode
          />
        )}
        <SelectField
          label={texts.only}
          value={input.only}
          options={[
            ['all', texts.allDocuments],
            ['selector', texts.bySelector],
            ['ids', texts.byIds],
            ['function', texts.byFunction],
          ]}
          hint={texts.onlyHint}
          onChange={(only) => set({ only })}
        />
      </div>
      <OnlyField input={input} faults={shown} set={set} />
      {failure !== null && <ErrorNotice failure={failure} title={texts.failed} />}
    </Dialog>
  )
}

interface OnlyFieldProps {
  readonly input: JobInput
  readonly faults: ReturnType<typeof jobFaults>
  set(change: Partial<JobInput>): void
}

/** Which documents come along. */
function OnlyField({ input, faults, set }: OnlyFieldProps) {
  const { only } = input
  if (only === 'all') return null
  if (only === 'function') {
    return (
      <TextField
        label={texts.filter}
        hint={texts.filterHint}
        value={input.filter}
        error={faults.filter}
        onChange={(filter) => set({ filter })}
        isCode
      />
    )
  }
  const [label, hint] =
    only === 'selector' ? [texts.selector, texts.selectorHint] : [texts.ids, texts.idsHint]
  return (
    <Field label={label} hint={hint} error={only === 'selector' ? faults.selector : faults.ids}>
      {(control) => (
        <textarea
          {...control}
          class="is-code"
          rows={4}
          spellcheck={false}
          value={only === 'selector' ? input.selector : input.ids}
          onInput={({ currentTarget: { value } }) =>
            set(only === 'selector' ? { selector: value } : { ids: value })
          }
        />
      )}
    </Field>
  )
}
