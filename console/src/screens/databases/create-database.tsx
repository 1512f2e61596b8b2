import { useRef, useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { server, user } from '../../api/session.ts'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { CheckField, TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { type Access, type Entry, securityOf } from './access-rules.ts'
import { ChoiceGroup } from './choice-group.tsx'
import { writeSecurity } from './database-calls.ts'
import { nameFault } from './database-name.ts'
import { NameList } from './name-list.tsx'

const texts = en.databases.create

/** Makes a database, and says who has access. */
export function CreateDatabase({ onClose }: { readonly onClose: () => void }) {
  const isHosted = server.value?.isHosted === true
  const isAdmin = user.value?.isAdmin === true
  const [name, setName] = useState('')
  const [entry, setEntry] = useState<Entry>('admins')
  const [names, setNames] = useState<readonly string[]>([])
  const [owner, setOwner] = useState('')
  const [isPartitioned, setPartitioned] = useState(false)
  const [error, setError] = useState<string | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  // The name of the database that a first attempt has made without setting its access.
  const made = useRef('')
  const rename = (text: string) => {
    setName(text)
    setError(null)
  }
  const submit = () => {
    if (isBusy) return
    const fault = nameFault(name)
    setError(fault === null ? null : texts.faults[fault])
    setFailure(null)
    if (fault !== null) return
    setBusy(true)
    const access: Access = { entry, memberNames: names, memberRoles: [], adminNames: [], adminRoles: [] }
    createDatabase(name, {
      access: isHosted ? null : access,
      owner: owner.trim(),
      isPartitioned,
      isMade: made.current === name,
      onMade: () => {
        made.current = name
      },
    }).then(
      () => {
        say(texts.done(name))
        onClose()
        go(hashOf(['databases', name]))
      },
      (thrown: unknown) => {
        setFailure(asFailure(thrown))
        setBusy(false)
      },
    )
  }
  const footer = <DialogButtons act={texts.submit} isBusy={isBusy} onCancel={onClose} />
  return (
    <Dialog title={texts.title} footer={footer} onClose={onClose} onSubmit={submit}>
      <TextField
        label={texts.name}
        hint={texts.nameHint}
        error={error}
        isCode
        value={name}
        onChange={rename}
      />
      {isHosted && isAdmin && (
        <TextField label={texts.owner} hint={texts.ownerHint} isCode value={owner} onChange={setOwner} />
      )}
      {isHosted && !isAdmin && <p class="soft">{texts.yours}</p>}
      {!isHosted && (
        <ChoiceGroup
          legend={texts.entry}
          value={entry}
          choices={(['admins', 'members', 'everyone'] as const).map((value) => ({
            value,
            text: en.databases.entries[value],
            hint: en.databases.entryHints[value],
          }))}
          onChange={setEntry}
        />
      )}
      {!isHosted && entry === 'members' && (
        <NameList
          label={en.databases.access.memberNames}
          hint={en.databases.access.namesHint}
          names={names}
          onChange={setNames}
        />
      )}
      {!isHosted && entry === 'everyone' && <Notice tone="warn">{en.databases.access.publicWarning}</Notice>}
      <CheckField
        label={texts.partitioned}
        hint={texts.partitionedHint}
        isOn={isPartitioned}
        onChange={setPartitioned}
      />
      {failure !== null && <ErrorNotice failure={failure} title={texts.failed} />}
    </Dialog>
  )
}

interface NewDatabase {
  /** null: the server decides. */
  readonly access: Access | null
  readonly owner: string
  readonly isPartitioned: boolean
  readonly isMade: boolean
  onMade(): void
}

/** The server's default may be open, so the access is always set. */
async function createDatabase(
  name: string,
  { access, owner, isPartitioned, isMade, onMade }: NewDatabase,
): Promise<void> {
  const query = {
    ...(owner !== '' && { owner }),
    ...(isPartitioned && { partitioned: 'true' }),
  }
  if (!isMade) await ask(pathOf(name), { method: 'PUT', query })
  onMade()
  if (access !== null) await writeSecurity(name, securityOf(access))
}
