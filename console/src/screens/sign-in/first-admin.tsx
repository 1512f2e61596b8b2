import { useEffect, useRef, useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { makeFirstAdmin } from '../../api/session.ts'
import { Brand } from '../../parts/brand.tsx'
import { Button } from '../../parts/button.tsx'
import { PasswordField, passwordFault, TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'

interface Faults {
  readonly name?: string
  readonly password?: string
  readonly repeat?: string
}

/** The first screen of a server without an admin. */
export function FirstAdmin() {
  const [name, setName] = useState('admin')
  const [password, setPassword] = useState('')
  const [repeat, setRepeat] = useState('')
  const [faults, setFaults] = useState<Faults>({})
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  useEffect(() => {
    document.title = en.shell.windowTitle(en.firstAdmin.title)
    form.current?.querySelector('input')?.select()
  }, [])
  const submit = () => {
    const found = faultsOf(name, password, repeat)
    setFaults(found)
    setFailure(null)
    if (Object.keys(found).length > 0 || isBusy) return
    setBusy(true)
    makeFirstAdmin(name, password).catch((error: unknown) => {
      setFailure(asFailure(error))
      setBusy(false)
    })
  }
  return (
    <main class="blank">
      <form
        class="doorway"
        ref={form}
        onSubmit={(event) => {
          event.preventDefault()
          submit()
        }}
      >
        <Brand />
        <h1>{en.firstAdmin.title}</h1>
        <Notice tone="warn">{en.firstAdmin.lead}</Notice>
        <TextField
          label={en.firstAdmin.name}
          value={name}
          onChange={setName}
          error={faults.name}
          autocomplete="username"
          isCode
        />
        <PasswordField
          label={en.firstAdmin.password}
          value={password}
          onChange={setPassword}
          hint={en.common.passwordHint}
          error={faults.password}
          isNew
        />
        <PasswordField
          label={en.firstAdmin.repeat}
          value={repeat}
          onChange={setRepeat}
          error={faults.repeat}
          isNew
        />
        {failure !== null && <ErrorNotice failure={failure} />}
        <Button kind="primary" type="submit" isBusy={isBusy}>
          {en.firstAdmin.submit}
        </Button>
        <p class="fine">{en.firstAdmin.next}</p>
      </form>
    </main>
  )
}

function faultsOf(name: string, password: string, repeat: string): Faults {
  const fault = passwordFault(password)
  return {
    ...((name === '' || name.startsWith('_') || name.includes(':')) && { name: en.firstAdmin.badName }),
    ...(fault !== null && { password: fault }),
    ...(password !== repeat && { repeat: en.firstAdmin.differs }),
  }
}
