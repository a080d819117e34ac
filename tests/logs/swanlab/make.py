"""Write ``run.swanlab`` with SwanLab's own code: ``pip install swanlab``, then run this file in a new folder.

Records of files, console and machine are left out, since they hold names of the machine; the others are
written again by SwanLab's own writer, as they are.
"""

import math
import pathlib

import swanlab
from swanlab.proto.swanlab.record.v1.record_pb2 import Record
from swanlab.sdk.internal.core_python.store import DataStoreReader, DataStoreWriter

swanlab.init(project="grpo", experiment_name="good", logdir="log", mode="offline")
for step in range(1, 13):
    kl = math.nan if step == 5 else 0.001 * step
    swanlab.log({"train/reward": 0.25 + 0.05 * step, "train/kl": kl, "train/entropy": 0.5}, step=step)
    if step % 4 == 0:
        swanlab.log({"train/note": swanlab.Text("text"), "eval/reward": 0.5}, step=step)
swanlab.finish()

(path,) = pathlib.Path("log").glob("run-*/run-*.swanlab")
reader, writer = DataStoreReader(), DataStoreWriter()
reader.open(path)
writer.open("run.swanlab")
for raw in reader:
    record = Record()
    record.ParseFromString(raw)
    if record.WhichOneof("record_type") not in ("log", "save"):
        writer.write(raw)
writer.close()
