/** Restores one database from a backup: under a new name, or in place, with what devices will notice. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { CopyField } from '../../parts/copy-field.tsx'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { bytes, time } from '../../strings/format.ts'
import {
  type BackedUp,
  type Backup,
  type Restored,
  readDatabasesOf,
  restoreDatabase,
} from './settings-api.ts'

const { restore: texts } = en.settings

/** Databases that are shown at once; a search finds the others. */
const MAX_SHOWN = 50
const DATABASE_NAME = /^[a-z][a-z0-9_$()+/-]*$/

interface RestoreDialogProps {
  readonly backup: Backup
  readonly onClose: () => void
}

export function RestoreDialog({ backup, onClose }: RestoreDialogProps) {
  const { id } = backup
  const { data, failure: notLoaded, reload } = useLoad((signal) => readDatabasesOf(id, signal), id)
  const [database, setDatabase] = useState<string | null>(null)
  const [isInPlace, setInPlace] = useState(false)
  const [name, setName] = useState('')
  const [problem, setProblem] = useState<string | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const [restored, setRestored] = useState<Restored | null>(null)
  const choose = (next: string) => {
    setDatabase(next)
    setName(`${next}-before`)
  }
  const submit = () => {
    if (database === null || isBusy) return
    if (isInPlace) {
      onClose()
      askToReplace(backup, database)
      return
    }
    const isNamed = DATABASE_NAME.test(name)
    setProblem(isNamed ? null : texts.badName)
    if (!isNamed) return
    setBusy(true)
    setFailure(null)
    restoreDatabase(id, database, name).then(setRestored, (error: unknown) => {
      setFailure(asFailure(error))
      setBusy(false)
    })
  }
  if (restored !== null) return <Done restored={restored} onClose={onClose} />
  const footer = (
    <DialogButtons
      act={isInPlace ? texts.continue : texts.submit}
      isBusy={isBusy}
      disabled={database === null}
      onCancel={isBusy ? null : onClose}
    />
  )
  return (
    <Dialog
      title={texts.title(id)}
      footer={footer}
      onSubmit={submit}
      onClose={isBusy ? () => undefined : onClose}
    >
      <p class="soft">{texts.lead(time(backup.begun_at))}</p>
      {notLoaded !== null && <ErrorNotice failure={notLoaded} onRetry={reload} />}
      {data === undefined && notLoaded === null && <Skeleton lines={4} />}
      {data !== undefined && <Choice databases={data} chosen={database} onChoose={choose} />}
      {database !== null && (
        <fieldset class="choices">
          <legend class="legend">{texts.how}</legend>
          <Way
            isOn={!isInPlace}
            label={texts.beside}
            hint={texts.besideHint}
            onChoose={() => setInPlace(false)}
          />
          <Way
            isOn={isInPlace}
            label={texts.inPlace}
            hint={texts.inPlaceHint}
            onChoose={() => setInPlace(true)}
          />
        </fieldset>
      )}
      {database !== null && !isInPlace && (
        <TextField
          label={texts.name}
          value={name}
          hint={texts.nameHint}
          error={problem}
          isCode
          onChange={setName}
        />
      )}
      {database !== null && isInPlace && <Notice tone="warn">{texts.timeMachine}</Notice>}
      {failure !== null && <ErrorNotice failure={failure} title={texts.failed} />}
    </Dialog>
  )
}

interface ChoiceProps {
  readonly databases: readonly BackedUp[]
  readonly chosen: string | null
  readonly onChoose: (name: string) => void
}

function Choice({ databases, chosen, onChoose }: ChoiceProps) {
  const [text, setText] = useState('')
  const found = databases.filter(({ name }) => name.includes(text.trim().toLowerCase()))
  const shown = found.slice(0, MAX_SHOWN)
  return (
    <fieldset class="choices">
      <legend class="legend">{texts.database}</legend>
      {databases.length > 8 && (
        <TextField label={texts.find} type="search" value={text} isCode onChange={setText} />
      )}
      {found.length > shown.length && (
        <p class="fine" role="status">
          {texts.found(shown.length, found.length)}
        </p>
      )}
      {found.length === 0 && <p class="soft">{texts.empty}</p>}
      <div class="choice-list">
        {shown.map(({ name, doc_count: documents, bytes: size }) => (
          <label key={name} class="choice">
            <input type="radio" name="database" checked={chosen === name} onChange={() => onChoose(name)} />
            <span>
              <span class="is-code">{name}</span>
              <span class="fine">{texts.documents(documents, bytes(size))}</span>
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  )
}

interface WayProps {
  readonly isOn: boolean
  readonly label: string
  readonly hint: string
  readonly onChoose: () => void
}

function Way({ isOn, label, hint, onChoose }: WayProps) {
  return (
    <label class="choice">
      <input type="radio" name="way" checked={isOn} onChange={onChoose} />
      <span>
        {label}
        <span class="fine">{hint}</span>
      </span>
    </label>
  )
}

function askToReplace({ id, begun_at: at }: Backup, database: string): void {
  confirm({
    title: texts.confirmTitle(database),
    effects: texts.confirmEffects(database, time(at)),
    undo: texts.confirmUndo(database),
    typed: database,
    act: texts.submit,
    run: async () => {
      const { doc_count: documents } = await restoreDatabase(id, database, null)
      say(texts.done(database, documents))
    },
  })
}

function Done({ restored, onClose }: { readonly restored: Restored; readonly onClose: () => void }) {
  const { database, doc_count: documents, kept } = restored
  const footer = (
    <>
      <Button onClick={onClose}>{en.common.close}</Button>
      <LinkButton kind="primary" href={hashOf(['databases', database])}>
        {texts.open(database)}
      </LinkButton>
    </>
  )
  return (
    <Dialog title={texts.doneTitle} footer={footer} onClose={onClose}>
      <Notice tone="good" title={texts.done(database, documents)} isAnnounced />
      {kept !== null && <CopyField label={texts.kept} value={kept} />}
    </Dialog>
  )
}
