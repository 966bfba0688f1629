# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "Key 'optimiser' not in 'TrainConfig'"
# ///
import dataclasses
import sys


class ConfigAttributeError(AttributeError):
    pass


@dataclasses.dataclass
class TrainConfig:
    optimizer: str = "adamw"
    lr: float = 1e-3
    warmup: int = 100

    @classmethod
    def merged(cls, **given):
        known = {field.name for field in dataclasses.fields(cls)}
        for key in given:
            if key not in known:
                raise ConfigAttributeError(
                    f"Key '{key}' not in '{cls.__name__}'\n    full_key: {key}\n    object_type={cls.__name__}"
                )
        return cls(**given)


sys.tracebacklimit = 3
config = TrainConfig.merged(optimiser="lion", lr=3e-4)
print(config)
