/** The server admins: added, given new passwords, removed; never the last one. */
import { useState } from 'preact/hooks'
import { asFailure, Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { signIn, user } from '../../api/session.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { PasswordField, passwordFault, TextField } from '../../parts/field.tsx'
import { Badge, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { hashForm } from './setting-values.ts'
import { readAdmins, resetSetting, writeSetting } from './settings-api.ts'

const { admins: texts } = en.settings

type Admin = readonly [name: string, stored: string]

/** `null` in `name`: a new admin. */
interface Editing {
  readonly name: string | null
}

export default function AdminsPart() {
  const { data, failure, reload } = useLoad(readAdmins, 'admins')
  const [editing, setEditing] = useState<Editing | null>(null)
  const add = (
    <Button kind="primary" icon="plus" onClick={() => setEditing({ name: null })}>
      {texts.add}
    </Button>
  )
  return (
    <>
      <Card title={en.settings.tabs.admins} lead={texts.lead} actions={add} isFlush>
        {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
        {data === undefined && failure === null && (
          <div class="log-wait">
            <Skeleton lines={3} />
          </div>
        )}
        {data !== undefined && (
          <DataTable
            caption={texts.list}
            columns={columnsFor(data.length === 1, setEditing, reload)}
            rows={data}
            keyOf={([name]) => name}
          />
        )}
        {data?.length === 1 && <p class="fine admins-last">{texts.last}</p>}
      </Card>
      {editing !== null && (
        <AdminDialog
          name={editing.name}
          taken={data?.map(([name]) => name) ?? []}
          onClose={() => setEditing(null)}
          onDone={reload}
        />
      )}
    </>
  )
}

function columnsFor(
  isLast: boolean,
  onEdit: (editing: Editing) => void,
  onRemoved: () => void,
): readonly Column<Admin>[] {
  return [
    {
      key: 'name',
      title: texts.name,
      isMain: true,
      cell: ([name]) => (
        <>
          {name} {name === user.value?.name && <Badge tone="info">{texts.you}</Badge>}
        </>
      ),
    },
    { key: 'hash', title: texts.hash, cell: ([, stored]) => <Hash stored={stored} /> },
    {
      key: 'actions',
      title: texts.actions,
      isUntitled: true,
      cell: ([name]) => (
        <div class="row is-end">
          <Button isSmall icon="edit" label={texts.changeOf(name)} onClick={() => onEdit({ name })} />
          <Button
            isSmall
            kind="danger"
            icon="trash"
            label={isLast ? texts.last : texts.removeOf(name)}
            disabled={isLast}
            onClick={() => askToRemove(name, onRemoved)}
          />
        </div>
      ),
    },
  ]
}

function Hash({ stored }: { readonly stored: string }) {
  const form = hashForm(stored)
  if (form === null) return <span class="soft">{texts.unknownHash}</span>
  return (
    <div>
      <span>{form.text}</span> {form.isWeak && <Badge tone="warn">{texts.weak}</Badge>}
      {form.isWeak && <p class="fine">{texts.weakHint}</p>}
    </div>
  )
}

function askToRemove(name: string, onRemoved: () => void): void {
  const isSelf = name === user.value?.name
  confirm({
    title: texts.removeTitle(name),
    effects: [...texts.removeEffects(name), ...(isSelf ? [texts.removeSelf] : [])],
    undo: texts.removeUndo,
    act: texts.remove,
    run: async () => {
      // Another admin may have removed the others meanwhile.
      const admins = await readAdmins(new AbortController().signal)
      if (admins.length < 2) throw new Failure(0, 'last', texts.last, null)
      await resetSetting('admins', name)
      say(texts.removed(name))
      if (isSelf) location.reload()
      else onRemoved()
    },
  })
}

interface AdminDialogProps {
  /** null: a new admin. */
  readonly name: string | null
  readonly taken: readonly string[]
  readonly onClose: () => void
  readonly onDone: () => void
}

function AdminDialog({ name, taken, onClose, onDone }: AdminDialogProps) {
  const [newName, setNewName] = useState('')
  const [password, setPassword] = useState('')
  const [repeated, setRepeated] = useState('')
  const [isTried, setTried] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const admin = name ?? newName.trim()
  const problems = {
    name: name === null ? problemOfName(admin, taken) : null,
    password: passwordFault(password),
    repeated: password === repeated ? null : texts.differs,
  }
  const submit = () => {
    setTried(true)
    if (isBusy || Object.values(problems).some((problem) => problem !== null)) return
    setBusy(true)
    setFailure(null)
    save(admin, password).then(
      () => {
        say(name === null ? texts.added(admin) : texts.changed(admin))
        onDone()
        onClose()
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setBusy(false)
      },
    )
  }
  const shown = (problem: string | null) => (isTried ? problem : null)
  const footer = (
    <DialogButtons act={name === null ? texts.add : texts.save} isBusy={isBusy} onCancel={onClose} />
  )
  return (
    <Dialog
      title={name === null ? texts.addTitle : texts.changeTitle(name)}
      footer={footer}
      onClose={onClose}
      onSubmit={submit}
    >
      {name === null ? (
        <TextField
          label={texts.name}
          value={newName}
          error={shown(problems.name)}
          autocomplete="username"
          isCode
          onChange={setNewName}
        />
      ) : (
        <p class="soft">{texts.changeLead}</p>
      )}
      <PasswordField
        label={texts.password}
        value={password}
        hint={en.common.passwordHint}
        error={shown(problems.password)}
        isNew
        onChange={setPassword}
      />
      <PasswordField
        label={texts.repeat}
        value={repeated}
        error={shown(problems.repeated)}
        isNew
        onChange={setRepeated}
      />
      {failure !== null && (
        <ErrorNotice failure={failure} title={name === null ? texts.notAdded : texts.notChanged} />
      )}
    </Dialog>
  )
}

function problemOfName(name: string, taken: readonly string[]): string | null {
  if (name === '' || /[:[\]]/.test(name)) return texts.badName
  return taken.includes(name) ? texts.exists : null
}

/** A new password ends the sessions with the old one, so whoever changes their own signs in with it. */
async function save(name: string, password: string): Promise<void> {
  await writeSetting('admins', name, password)
  if (name === user.value?.name) await signIn(name, password)
}
