"""Run by Alembic; the migrations run in the caller's transaction."""

from alembic import context

from headrace.store.tables import metadata


def run() -> None:
    """Run the migrations that Alembic has selected."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        render_as_batch=True,  # SQLite changes a column only by recreating its table
    )
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # Alembic's name for this module; not for a plain import
    run()
