/** A dialog that makes an index of fields. */
import { useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { CheckField, Field, TextField } from '../../parts/field.tsx'
import { findObjectFault } from '../../parts/json-editor/exact-json.ts'
import { ErrorNotice } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'
import { makeIndex } from './index-offer.tsx'

const { newIndex: texts } = en.queries

interface NewIndexDialogProps {
  readonly database: string
  onClose(): void
  /** @param result `created` or `exists` */
  onMade(result: string): void
}

export function NewIndexDialog({ database, onClose, onMade }: NewIndexDialogProps) {
  const info = useLoad(
    (signal) => ask<{ props?: { partitioned?: boolean } }>(pathOf(database), { signal }),
    database,
  )
  const isPartitionedDatabase = info.data?.props?.partitioned === true
  const [fields, setFields] = useState('')
  const [name, setName] = useState('')
  const [filter, setFilter] = useState('')
  const [isGlobal, setGlobal] = useState(false)
  const [isTried, setTried] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const list = fieldList(fields)
  const fieldFault = list.length === 0 ? texts.needField : null
  const filterFault = filter.trim() !== '' && findObjectFault(filter) !== null ? texts.badFilter : null
  const submit = () => {
    setTried(true)
    if (fieldFault !== null || filterFault !== null || isBusy) return
    setBusy(true)
    setFailure(null)
    makeIndex(database, {
      fields: list,
      name: name.trim(),
      isPartitioned: isPartitionedDatabase ? !isGlobal : null,
      ...(filter.trim() !== '' && { filter: JSON.parse(filter) as unknown }),
    }).then(
      ({ result }) => onMade(result),
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  const footer = <DialogButtons act={texts.act} isBusy={isBusy} onCancel={onClose} />
  return (
    <Dialog title={texts.title} footer={footer} onClose={onClose} onSubmit={submit}>
      <p class="soft">{texts.lead}</p>
      <TextField
        label={texts.fields}
        hint={texts.fieldsHint}
        value={fields}
        error={isTried ? fieldFault : null}
        onChange={setFields}
        isCode
      />
      <TextField label={texts.name} hint={texts.nameHint} value={name} onChange={setName} isCode />
      <Field label={texts.filter} hint={texts.filterHint} error={isTried ? filterFault : null}>
        {(control) => (
          <textarea
            {...control}
            class="is-code"
            rows={2}
            spellcheck={false}
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        )}
      </Field>
      {isPartitionedDatabase && (
        <CheckField label={texts.global} hint={texts.globalHint} isOn={isGlobal} onChange={setGlobal} />
      )}
      {failure !== null && <ErrorNotice failure={failure} title={texts.failed} />}
    </Dialog>
  )
}

/** Names of fields have no commas in practice; one that has can be made through `_index`. */
function fieldList(text: string): readonly string[] {
  return [...new Set(text.split(/[,\n]/).map((field) => field.trim()))].filter((field) => field !== '')
}
