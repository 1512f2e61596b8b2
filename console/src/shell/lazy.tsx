/** Code that is loaded when it is needed. */
import { Component, type ComponentChildren, type ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { asFailure } from '../api/failure.ts'
import { Button } from '../parts/button.tsx'
import { ErrorNotice, Notice, Skeleton } from '../parts/notice.tsx'
import { en } from '../strings/en.ts'

interface LazyProps<Props extends object> {
  readonly load: () => Promise<{ readonly default: ComponentType<Props> }>
  readonly props: Props
}

/** Loads a component and shows it. Give it a `key` that names the component. */
export function Lazy<Props extends object>({ load, props }: LazyProps<Props>) {
  const [state, setState] = useState<{ readonly Body?: ComponentType<Props>; readonly isLost?: boolean }>({})
  useEffect(() => {
    let isGone = false
    load().then(
      ({ default: Body }) => {
        if (!isGone) setState({ Body })
      },
      () => {
        if (!isGone) setState({ isLost: true })
      },
    )
    return () => {
      isGone = true
    }
  }, [])
  if (state.isLost) return <NotLoaded />
  const { Body } = state
  return Body === undefined ? <Skeleton lines={6} /> : <Body {...props} />
}

function NotLoaded() {
  const reload = <Button onClick={() => location.reload()}>{en.shell.reload}</Button>
  return <Notice tone="bad" title={en.shell.screenNotLoaded} actions={reload} isAnnounced />
}

/** Shows an error of a screen in its place, so that the navigation stays usable. Give it a `key` that names the screen. */
export class ErrorBoundary extends Component<
  { readonly children: ComponentChildren },
  { readonly error: unknown }
> {
  override state = { error: undefined as unknown }

  static override getDerivedStateFromError(error: unknown) {
    return { error }
  }

  override render() {
    if (this.state.error === undefined) return this.props.children
    return (
      <ErrorNotice
        failure={asFailure(this.state.error)}
        title={en.shell.screenFailed}
        onRetry={() => this.setState({ error: undefined })}
      />
    )
  }
}
