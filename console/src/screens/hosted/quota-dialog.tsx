import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { SelectField, TextField } from '../../parts/field.tsx'
import { ErrorNotice } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { changeTenant, type Limit, QUOTAS, type QuotaName, type Tenant } from './tenant-calls.ts'

const texts = en.hosted

type Mode = 'default' | 'own' | 'infinity'

interface Entry {
  readonly mode: Mode
  /** In the unit of the field. */
  readonly text: string
}

/** Sizes are entered in MB. */
const MB = 1_000_000

function unitOf(name: QuotaName): number {
  return name === 'bytes' || name === 'document_size' ? MB : 1
}

interface QuotaDialogProps {
  readonly tenant: Tenant
  readonly onClose: () => void
  readonly onChanged: () => void
}

export function QuotaDialog({ tenant, onClose, onChanged }: QuotaDialogProps) {
  const [entries, setEntries] = useState<Record<QuotaName, Entry>>(() => entriesOf(tenant))
  const [faults, setFaults] = useState<readonly QuotaName[]>([])
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const set = (name: QuotaName, change: Partial<Entry>) =>
    setEntries((old) => ({ ...old, [name]: { ...old[name], ...change } }))
  const submit = () => {
    const wrong = QUOTAS.filter((name) => limitOf(name, entries[name]) === undefined)
    setFaults(wrong)
    setFailure(null)
    if (wrong.length > 0 || isBusy) return
    setBusy(true)
    const quota = Object.fromEntries(QUOTAS.map((name) => [name, limitOf(name, entries[name])]))
    changeTenant(tenant.name, { quota }).then(
      () => {
        say(texts.limitsChanged(tenant.name))
        onChanged()
        onClose()
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  const footer = <DialogButtons act={en.common.save} isBusy={isBusy} onCancel={onClose} />
  return (
    <Dialog title={texts.limitsTitle(tenant.name)} footer={footer} onClose={onClose} onSubmit={submit}>
      <p>{texts.limitsLead}</p>
      {QUOTAS.map((name) => (
        <QuotaField
          key={name}
          name={name}
          entry={entries[name]}
          isFaulty={faults.includes(name)}
          onChange={(change) => set(name, change)}
        />
      ))}
      {failure !== null && <ErrorNotice failure={failure} />}
    </Dialog>
  )
}

interface QuotaFieldProps {
  readonly name: QuotaName
  readonly entry: Entry
  readonly isFaulty: boolean
  readonly onChange: (change: Partial<Entry>) => void
}

function QuotaField({ name, entry, isFaulty, onChange }: QuotaFieldProps) {
  const modes: readonly (readonly [Mode, string])[] = [
    ['default', texts.modes.default],
    ['own', texts.modes.own],
    ['infinity', texts.modes.infinity],
  ]
  return (
    <div class="quota-field">
      <SelectField
        label={texts.quotas[name]}
        value={entry.mode}
        options={modes}
        onChange={(mode) => onChange({ mode })}
      />
      {entry.mode === 'own' && (
        <TextField
          label={texts.limitIn(texts.units[name])}
          value={entry.text}
          onChange={(text) => onChange({ text })}
          error={isFaulty ? texts.badLimit : undefined}
        />
      )}
    </div>
  )
}

function entriesOf({ overrides, quota }: Tenant): Record<QuotaName, Entry> {
  const entryOf = (name: QuotaName): Entry => {
    const own = overrides[name]
    if (own === 'infinity') return { mode: 'infinity', text: '' }
    const shown = own ?? quota[name]
    const text = shown === 'infinity' ? '' : String(shown / unitOf(name))
    return { mode: own === undefined ? 'default' : 'own', text }
  }
  return Object.fromEntries(QUOTAS.map((name) => [name, entryOf(name)])) as Record<QuotaName, Entry>
}

/** @returns null for the configured limit; undefined: what was entered is no number */
function limitOf(name: QuotaName, { mode, text }: Entry): Limit | null | undefined {
  if (mode === 'default') return null
  if (mode === 'infinity') return 'infinity'
  const value = Number(text.trim().replace(/[\s,_]/g, ''))
  if (text.trim() === '' || !Number.isFinite(value) || value < 0) return undefined
  const limit = value * unitOf(name)
  return Number.isSafeInteger(Math.round(limit)) ? Math.round(limit) : undefined
}
